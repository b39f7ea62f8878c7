"""Tools that end in odd ways: functions of a plug-in, and servers behind them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attacks.catalogue import Attack, each

from orgthink.errors import ToolError
from orgthink.http import HttpResponse
from orgthink.runtime.result import Result
from orgthink.tools.retriever_client import _read
from orgthink.tools.tool import FunctionTool

ITS_OWN = "Whatever a function raises or returns is the failure of its call."
FAILS = "the call fails, with one line"
FOUND = "What a search server sends is checked before it is used."


def raises(error: BaseException) -> Any:
    async def tool() -> str:
        """Raise."""
        raise error

    return tool


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
    Attack("a function returns bytes as a result", ITS_OWN, FAILS, returns(Result(b"a"))),  # type: ignore[arg-type]
    Attack("a function returns a list as a result", ITS_OWN, FAILS, returns(Result(["a"]))),  # type: ignore[arg-type]
    Attack("a function returns a number", ITS_OWN, FAILS, returns(7)),
)
async def test_a_function_that_ends_oddly(attack: Attack) -> None:
    with pytest.raises(ToolError):
        await FunctionTool(attack.given).work(None, {}, None)  # type: ignore[arg-type]  # it looks at neither


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
    with pytest.raises(ToolError, match="not a result") as caught:
        _read(reply, "http://search")
    assert "\n" not in str(caught.value)
