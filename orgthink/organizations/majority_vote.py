"""Majority voting (section 4.4 of ParaManager): a fixed number of samples of one model, the most frequent answer."""

from __future__ import annotations

from dataclasses import dataclass

from orgthink.organizations.parallel import Parallel
from orgthink.util.errors import require_at_least


@dataclass(frozen=True)
class MajorityVote(Parallel):
    """A fixed number of agents think; the most frequent answer wins. Agents beyond the capacity wait."""

    samples: int = 8
    """Thinkers that vote."""
    name: str = "majority-vote"

    def __post_init__(self) -> None:
        require_at_least(1, self, "samples")

    def thinkers(self, capacity: int) -> int:
        return self.samples
