"""Credit of AsyncThink: one advantage an episode, relative to its group and shared by all its sampled tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Literal

from orgthink.credit import EpisodeCredit
from orgthink.util.errors import explained, require_at_least

Normalise = Literal["std", "none"]
"""Whether advantages are divided by the group's standard deviation."""

FLAT = 1e-9
"""Standard deviation under which a group has no gradient."""


def advantages(
    rewards: Sequence[float], normalise: Normalise = "std", *, delta: float = 0.0
) -> tuple[float, ...] | None:
    """Reward minus the mean of its group, divided by the group's (population) standard deviation, or not.

    `delta` is added to the standard deviation (δ in Eq. 19 of ParaManager).

    `None` if all rewards are equal: such a group has no gradient and is dropped. Dividing by a deviation that comes
    from a small λ alone makes concurrency weigh like accuracy; `normalise="none"` avoids this.
    ValueError if the group is empty, a reward is not a number, or `delta` is not a number from 0 on.
    """
    if not 0 <= delta < math.inf:
        raise ValueError(f"delta is {delta}: it must be a number from 0 on")
    if not rewards:
        raise ValueError("the group is empty")
    for i, reward in enumerate(rewards):
        if not math.isfinite(reward):
            raise ValueError(f"the reward of sample {i} is {reward}: it must be a number")
    mean, spread = fmean(rewards), pstdev(rewards)
    if spread < FLAT:
        return None
    return tuple((reward - mean) / (spread + delta if normalise == "std" else 1.0) for reward in rewards)


def credit(
    groups: Mapping[str, Mapping[str, float]], normalise: Normalise = "std", *, delta: float = 0.0
) -> dict[str, float]:
    """Advantage of each episode. `groups` maps a problem to the rewards of its episodes; flat groups are left out.

    `delta` and ValueError as of `advantages`; the error names the group.
    """
    found: dict[str, float] = {}
    for name, rewards in groups.items():
        with explained(f"group {name}", ValueError, by=ValueError):
            of_group = advantages(list(rewards.values()), normalise, delta=delta)
        found |= zip(rewards, of_group, strict=True) if of_group is not None else ()
    return found


@dataclass(frozen=True, slots=True)
class SharedCredit(EpisodeCredit):
    """Reward minus the mean of its group, shared by all tokens that were sampled in the episode."""

    normalise: Normalise = "std"
    """Whether advantages are divided by their group's standard deviation."""
    delta: float = 0.0
    """δ, added to that standard deviation (Eq. 19 of ParaManager)."""

    def __post_init__(self) -> None:
        require_at_least(0, self, "delta")

    def __call__(self, groups: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        return credit(groups, self.normalise, delta=self.delta)
