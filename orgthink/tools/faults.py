"""Injected faults: calls that fail at a set rate, so that managers meet failures and learn to recover from them."""

from __future__ import annotations

import random
from dataclasses import dataclass

from orgthink.episode import Status
from orgthink.grammar.toolcall import CallStatus
from orgthink.runtime.result import Result

KINDS = (CallStatus.EXEC_ERR, CallStatus.TIMEOUT, CallStatus.PARSE_ERR)
"""Ways in which a call fails, equally likely."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Which calls fail: the same ones whenever an episode is repeated."""

    rate: float = 0.0
    """Share of calls."""
    seed: int = 0
    """Other calls fail with another one."""

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ValueError(f"the rate of faults is {self.rate}: it must lie in [0, 1]")

    def of(self, episode: str, call: str) -> CallStatus | None:
        """How a call of an episode fails, both by their names; `None` if it does not."""
        rng = random.Random(f"{self.seed}|{episode}|{call}")
        return rng.choice(KINDS) if rng.random() < self.rate else None


INJECTED = "injected fault"
"""What is told of a call that was made to fail."""


def injected(status: CallStatus) -> Result:
    """What becomes of a call that fails so, EXEC_ERR or TIMEOUT."""
    return Result("", Status.TIMEOUT if status is CallStatus.TIMEOUT else Status.ERROR, error=INJECTED)
