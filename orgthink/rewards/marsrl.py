"""Agent-specific verifiable rewards (section 3.2 of MarsRL).

A solution is rewarded if it agrees with the reference, a verdict if it agrees with the truth about the solution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from orgthink.grammar.verdict import Verdict
from orgthink.rewards import RoleReward


@dataclass(frozen=True, slots=True)
class MarsReward(RoleReward):
    """One reward for right work and one for wrong work, as in the paper."""

    right: float = 1.0
    """Reward of a right solution, and of a verdict that agrees with the truth."""
    wrong: float = 0.0
    """Reward of a wrong solution, and of a verdict that does not agree."""
    unparsed: float = 0.0
    """Reward of a report without a verdict, such as a truncated one; ours. A value below `wrong` gives wrong verdicts a
    positive advantage in a group without a right one."""

    def __post_init__(self) -> None:
        if not (-math.inf < self.unparsed <= self.wrong < self.right < math.inf):
            raise ValueError(
                f"rewards are {self.unparsed} (unparsed), {self.wrong} (wrong), {self.right} (right): "
                "they must be finite, unparsed ≤ wrong < right"
            )

    def solution(self, right: bool) -> float:
        return self.right if right else self.wrong

    def verdict(self, verdict: Verdict, truth: bool) -> float:
        if verdict is Verdict.UNPARSED:
            return self.unparsed
        return self.right if verdict.agrees(truth) else self.wrong
