"""Credit of rejection sampling (RFT, arXiv 2308.01825; RAFT, arXiv 2304.06767): imitate the accepted attempts.

The baseline to beat for every other credit: the same rollouts, the same optimizer, and no attempt that is pushed away.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from orgthink.credit import EpisodeCredit
from orgthink.credit.shared import FLAT


@dataclass(frozen=True, slots=True)
class AcceptedCredit(EpisodeCredit):
    """Advantage 1 for an accepted attempt; the others are not trained on. So a step is one of supervised fine-tuning on
    the accepted attempts of its own policy."""

    least: float = 1.0
    """Least reward of an accepted attempt."""
    best: bool = False
    """Whether it must be the best of its group, too (RAFT). Of several, all are."""

    def __post_init__(self) -> None:
        if not math.isfinite(self.least):
            raise ValueError(f"least is {self.least}: it must be a number")

    @property
    def imitated_from(self) -> float:
        return self.least

    def __call__(self, groups: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        accepted: dict[str, float] = {}
        for name, rewards in groups.items():
            if wrong := [reward for reward in rewards.values() if not math.isfinite(reward)]:
                raise ValueError(f"group {name}: the reward of a sample is {wrong[0]}: it must be a number")
            least = max([self.least, *rewards.values()]) if self.best else self.least
            accepted |= {episode: 1.0 for episode, reward in rewards.items() if reward >= least - FLAT}
        return accepted
