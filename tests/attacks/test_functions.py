"""Tools that end in odd ways: functions of a plug-in, and servers behind them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from attacks.catalogue import Attack, each
from attacks.deadline import within

import orgthink
from orgthink.engines.scripted import ScriptedEngine
from orgthink.record.episode import Problem, StopReason
from orgthink.runtime import Limits, Organization, Session, clock
from orgthink.runtime.agent import Result, result_of
from orgthink.tools.corpus import Passage
from orgthink.tools.search import _read, look_up
from orgthink.tools.tool import MOST_RETURNED, Desk, FunctionTool, paid_work, response_of
from orgthink.util.errors import ToolError
from orgthink.util.http import HttpResponse

pytestmark = pytest.mark.thorough

ITS_OWN = "Whatever a function raises or returns is the failure of its call."
INTERRUPTS = "No function keeps Ctrl-C from the command."
PLAIN = "What a function returns is plain text, whatever type it has."
FAILS = "the call fails, with one line"
FOUND = "What a search server sends is checked before it is used."


def raises(error: BaseException) -> Any:
    async def tool() -> str:
        """Raise."""
        raise error

    return tool


class Panic(BaseException):
    """As pyo3's PanicException: a library in Rust gave up."""


class Mute(Exception):
    """Fails when it is asked what it says."""

    def __str__(self) -> str:
        raise ValueError("no text")


class Word(str):
    """A text with a mind of its own."""

    def strip(self, *characters: Any) -> str:
        raise RuntimeError("no")


def returns(value: Any) -> Any:
    async def tool() -> Any:
        """Return."""
        return value

    return tool


@each(
    Attack("a function leaves by `sys.exit`", ITS_OWN, FAILS, raises(SystemExit(3))),
    Attack("a function times out by itself", ITS_OWN, FAILS, raises(TimeoutError())),
    Attack("a function stops an iteration", ITS_OWN, FAILS, raises(StopAsyncIteration())),
    Attack("a function recurses without end", ITS_OWN, FAILS, raises(RecursionError("deep"))),
    Attack("a function's library in Rust panics", ITS_OWN, FAILS, raises(Panic("index out of bounds"))),
    Attack("a function raises GeneratorExit", ITS_OWN, FAILS, raises(GeneratorExit())),
    Attack("a function raises a group with a panic", ITS_OWN, FAILS, raises(BaseExceptionGroup("g", [Panic()]))),
    Attack("a function raises what has no text", ITS_OWN, FAILS, raises(Mute())),
    Attack("a function returns bytes as a result", ITS_OWN, FAILS, returns(Result(b"a"))),  # type: ignore[arg-type]
    Attack("a function returns a list as a result", ITS_OWN, FAILS, returns(Result(["a"]))),  # type: ignore[arg-type]
    Attack("a function returns a number", ITS_OWN, FAILS, returns(7)),
)
async def test_a_function_that_ends_oddly(attack: Attack) -> None:
    with pytest.raises(ToolError):
        await FunctionTool(attack.given).work(None, {}, None)  # type: ignore[arg-type]  # it looks at neither


@each(
    Attack("a function is cancelled", "Who cancels a call ends it.", "the call ends", raises(asyncio.CancelledError())),
    Attack("Ctrl-C while a function runs", INTERRUPTS, "the command ends", raises(KeyboardInterrupt())),
    Attack(
        "Ctrl-C in a group of a function's tasks",
        INTERRUPTS,
        "the command ends",
        raises(BaseExceptionGroup("g", [BaseExceptionGroup("h", [KeyboardInterrupt()])])),
    ),
)
async def test_a_function_that_is_ended(attack: Attack) -> None:
    with pytest.raises((asyncio.CancelledError, KeyboardInterrupt)):
        await FunctionTool(attack.given).work(None, {}, None)  # type: ignore[arg-type]  # it looks at neither


@each(
    Attack("a function returns a text that cannot be stripped", PLAIN, "the call succeeds", returns(Word(" hi "))),
    Attack("a function returns such a text in a result", PLAIN, "the call succeeds", returns(Result(Word(" hi ")))),
)
async def test_a_text_with_a_mind_of_its_own(attack: Attack) -> None:
    found = await FunctionTool(attack.given).work(None, {}, None)  # type: ignore[arg-type]  # it looks at neither
    result = result_of(found, StopReason.DONE)
    assert type(result.text) is str
    assert response_of("tool", result).value == "hi"


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


@each(Attack("a function still waits when the program ends", ENDS, "nothing is said", stubborn))
async def test_a_call_that_is_closed(attack: Attack, caplog: pytest.LogCaptureFixture) -> None:
    call = FunctionTool(attack.given).work(None, {}, None)  # type: ignore[arg-type]  # it looks at neither
    call.send(None)  # type: ignore[attr-defined]  # a coroutine
    call.close()  # type: ignore[attr-defined]
    assert not caplog.text


def passage(**values: Any) -> Any:
    return {"score": 1.0, "document": {"contents": "a"}} | values


@each(
    Attack("a passage with a score of 10⁴⁰⁰", FOUND, FAILS, passage(score=10**400)),
    Attack("a passage with a score of NaN", FOUND, FAILS, passage(score=float("nan"))),
    Attack("a passage whose contents are a list", FOUND, FAILS, passage(document={"contents": ["a"]})),
    Attack("a passage whose document is a text", FOUND, FAILS, passage(document="a")),
    Attack("a passage that is `null`", FOUND, FAILS, None),
)
def test_a_passage_that_is_none(attack: Attack) -> None:
    reply = HttpResponse(200, json.dumps({"result": [[attack.given]]}).encode())
    with pytest.raises(ToolError, match="an invalid result") as caught:
        _read(reply, "http://search")
    assert "\n" not in str(caught.value)


@each(
    Attack(
        "a passage of five megabytes", "What a tool sends is bounded.", "its middle is left out", "word " * 1_000_000
    )
)
async def test_a_passage_that_is_long(attack: Attack) -> None:
    class Endless:
        async def retrieve(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
            return [[Passage("", attack.given, 1.0)] for _ in queries]

    text = await look_up(Endless(), ["a", "b"], 1)
    assert text.startswith("a: word") and text.endswith("word") and len(text) < 1.01 * MOST_RETURNED
