"""Credit of rejection sampling (RFT, arXiv 2308.01825; RAFT, arXiv 2304.06767): imitate the accepted attempts.

The baseline for every other credit: the same rollouts and optimizer, without negative advantages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from orgthink.credit import EpisodeCredit
from orgthink.credit.shared import FLAT


@dataclass(frozen=True, slots=True)
class AcceptedCredit(EpisodeCredit):
    """Advantage 1 for accepted attempts; others are not trained on: supervised fine-tuning on the policy's own accepted
    attempts."""

    least: float = 1.0
    """Least reward of an accepted attempt."""
    best: bool = False
    """Whether it must also be the best of its group (RAFT); ties are all accepted."""

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
