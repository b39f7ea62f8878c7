"""Agent-specific verifiable rewards (section 3.2 of MarsRL): each agent is rewarded for its own work, not for what came
of it.

A solution is rewarded by agreement with the reference, a verdict by agreement with the truth of what it judged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from orgthink.grammar.verdict import Verdict
from orgthink.rewards import RoleReward


@dataclass(frozen=True, slots=True)
class MarsReward(RoleReward):
    """Two rewards, one for right work and one for wrong work, as in the paper."""

    right: float = 1.0
    """Of a right solution, and of a verdict that agrees with the truth."""
    wrong: float = 0.0
    """Of a wrong solution, and of a verdict that does not agree."""
    unparsed: float = 0.0
    """Of a report without a verdict, one that was cut off included; the paper does not tell. Below `wrong` it gives
    wrong verdicts a positive advantage in a group without a right one."""

    def __post_init__(self) -> None:
        if not (-math.inf < self.unparsed <= self.wrong < self.right < math.inf):
            raise ValueError(
                f"rewards are {self.unparsed} (unparsed), {self.wrong} (wrong), {self.right} (right): "
                "they must be numbers that do not fall, and right must be above wrong"
            )

    def solution(self, right: bool) -> float:
        return self.right if right else self.wrong

    def verdict(self, verdict: Verdict, truth: bool) -> float:
        if verdict is Verdict.UNPARSED:
            return self.unparsed
        return self.right if verdict.agrees(truth) else self.wrong
