"""Injected faults: calls that fail at a set rate, so that managers meet failures and learn to recover from them.

They look like failures of real tools: a call that times out takes its whole time, a call that cannot be read is refused
in the words of the parser, and a call that fails says what a program, or a server, says that fails.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from orgthink.grammar.strict_json import dump, parse
from orgthink.grammar.toolcall import CallStatus, ToolCall
from orgthink.record.episode import Status
from orgthink.runtime.agent import Result

KINDS = (CallStatus.EXEC_ERR, CallStatus.TIMEOUT, CallStatus.PARSE_ERR)
"""Ways in which a call fails, equally likely."""

MARK = "injected fault"
"""What a marked fault says."""

_PROGRAMS = (
    Result('Traceback (most recent call last):\n  File "<stdin>", line 1, in <module>\nMemoryError', Status.ERROR),
    Result("", Status.ERROR, error="ended by SIGKILL"),
)
"""Ends of programs that say nothing about their code."""
_SERVERS = tuple(
    Result("", Status.ERROR, error=message)
    for message in (
        "the server answered 503: overloaded",
        "the server broke off its answer: connection reset by peer",
        "the server said nothing for 120 s",
    )
)


@dataclass(frozen=True, slots=True)
class Faults:
    """Which calls fail: the same ones whenever an episode is repeated."""

    rate: float = 0.0
    """Share of calls."""
    seed: int = 0
    """Other calls fail with another one."""
    marked: bool = False
    """Faults say that they are injected, and take no time: what the pocket models have learned from."""

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ValueError(f"the rate of faults is {self.rate}: it must lie in [0, 1]")

    def of(self, episode: str, call: str) -> CallStatus | None:
        """How a call of an episode fails, both by their names; `None` if it does not."""
        rng = random.Random(f"{self.seed}|{episode}|{call}")
        return rng.choice(KINDS) if rng.random() < self.rate else None

    def refusal(self, call: ToolCall) -> str:
        """What is told of a call that fails with PARSE_ERR: it lost its last brace on the way."""
        if self.marked:
            return MARK
        try:
            parse(dump({"name": call.name, "arguments": call.arguments})[:-1])
        except ValueError as error:
            return str(error)
        raise AssertionError("half an object is no JSON")

    async def result(self, status: CallStatus, tool: str, key: str) -> Result:
        """What becomes of a call that fails with EXEC_ERR or TIMEOUT. A timeout waits for the deadline of the call."""
        if self.marked:
            return Result("", Status.TIMEOUT if status is CallStatus.TIMEOUT else Status.ERROR, error=MARK)
        if status is CallStatus.TIMEOUT:
            await asyncio.Event().wait()
        return random.Random(f"{self.seed}|{key}").choice(_PROGRAMS if tool == "python" else _SERVERS)
