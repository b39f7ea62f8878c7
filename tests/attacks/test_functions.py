"""Tools that end in odd ways: functions of a plug-in, and servers behind them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from attacks.catalogue import Attack, each
from attacks.deadline import within

import orgthink
from orgthink.engines.scripted import ScriptedEngine
from orgthink.record.episode import Problem
from orgthink.runtime import Limits, Organization, Session, clock
from orgthink.tools.tool import Desk, FunctionTool, paid_work
from orgthink.util.errors import ToolError

pytestmark = pytest.mark.thorough

ITS_OWN = "An exception of a function, or a result that is no text, is the failure of its call."
FAILS = "the call fails, with one line"


def raises(error: Exception) -> Any:
    async def tool() -> str:
        """Raise."""
        raise error

    return tool


class Mute(Exception):
    """Fails when it is asked what it says."""

    def __str__(self) -> str:
        raise ValueError("no text")


def returns(value: Any) -> Any:
    async def tool() -> Any:
        """Return."""
        return value

    return tool


@each(
    Attack("a function times out by itself", ITS_OWN, FAILS, raises(TimeoutError())),
    Attack("a function stops an iteration", ITS_OWN, FAILS, raises(StopAsyncIteration())),
    Attack("a function recurses without end", ITS_OWN, FAILS, raises(RecursionError("deep"))),
    Attack("a function raises what has no text", ITS_OWN, FAILS, raises(Mute())),
    Attack("a function returns a number", ITS_OWN, FAILS, returns(7)),
)
async def test_a_function_that_ends_oddly(attack: Attack) -> None:
    with pytest.raises(ToolError):
        await FunctionTool(attack.given).work(None, {}, None)  # type: ignore[arg-type]  # it looks at neither


async def stubborn() -> str:
    """Never ends."""
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


async def leaves_work() -> str:
    """Leave a task behind that never ends."""
    _tasks.append(asyncio.create_task(stubborn()))
    return "done"


_tasks: list[asyncio.Task[str]] = []


@dataclass(frozen=True)
class Calls(Organization):
    """Calls one function."""

    tool: Callable[[], Awaitable[str]]
    name: str = "calls"
    roles = ("caller",)

    async def run(self, problem: Problem, session: Session) -> str:
        tool, desk = FunctionTool(self.tool), Desk(session, problem, None, {})  # type: ignore[arg-type]  # no prompt
        root = session.controller()
        result = await session.call(root, "1", tool.agent({}, desk), paid_work(tool, {}, desk))
        return result.text or result.status


ENDS = "A program ends when its work is done, whatever its tools leave running."
WAITS = "the answer is there; the end waits for ten seconds, and says so"


@each(
    Attack("a function swallows every cancellation", ENDS, WAITS, (stubborn, "timeout")),
    Attack("a task that a function left behind swallows every cancellation", ENDS, WAITS, (leaves_work, "done")),
)
def test_a_function_that_never_ends(
    attack: Attack, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    function, answer = attack.given
    monkeypatch.setattr(clock, "LAST_SECONDS", 0.1)
    how = {"model": ScriptedEngine([]), "limits": Limits(agent_seconds=0.1, grace=0.1)}
    episode = within(30.0, lambda: orgthink.solve("?", Calls(function), **how))
    assert episode.answer == answer
    assert "1 task(s) do not end" in caplog.text
