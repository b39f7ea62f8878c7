"""Work that takes long, or leaves much behind, because somebody made it so: nobody else waits for it."""

from __future__ import annotations

import asyncio
import threading
from difflib import SequenceMatcher
from types import SimpleNamespace
from typing import Any

import pytest
from attacks.catalogue import Attack, each
from orgthink_arena.tasks.bench.outputs import printed, returned

from orgthink.grammar.toolcall import CallStatus, ToolCall
from orgthink.organizations.tool_rounds import Rounds
from orgthink.tools.schema import Parameters
from orgthink.util.threads import in_thread

pytestmark = pytest.mark.thorough

FREE = "Work beside the event loop keeps no name of a server from being looked up."
NEAR = "What is like a wrong name is looked for among a bounded number of short names."
SMALL = "What is kept of a program's output for votes to come is of one size, however much it prints."


@each(
    Attack("64 programs under test that sleep", FREE, "names of servers are found", lambda wait: in_thread(wait)),
)  # fmt: skip
async def test_long_work(attack: Attack) -> None:
    over = threading.Event()
    works = [asyncio.create_task(attack.given(lambda: over.wait(60))) for _ in range(64)]
    try:
        await asyncio.sleep(0)  # they begin
        async with asyncio.timeout(20):
            assert await asyncio.get_running_loop().getaddrinfo("localhost", 80)
    finally:
        over.set()
        await asyncio.gather(*works, return_exceptions=True)


def missing_parameter(names: list[str], wrong: str) -> str:
    schema = {"type": "object", "properties": {name: {} for name in names}, "additionalProperties": False}
    with pytest.raises(ValueError, match="unknown parameter") as caught:
        Parameters.from_schema(schema).check({wrong: 1})
    return str(caught.value)


def missing_tool(names: list[str], wrong: str) -> str:
    session: Any = SimpleNamespace(fault=lambda *_: None)
    desk: Any = SimpleNamespace(session=session)
    manager: Any = None
    rounds = Rounds(manager, dict.fromkeys(names), desk, 1, 1.0, str, None)  # type: ignore[arg-type]
    response = asyncio.run(rounds._judged("1.1", 1, ToolCall(wrong, {})))
    assert getattr(response, "status", None) is CallStatus.PARSE_ERR
    return response.value  # type: ignore[union-attr]


@each(
    Attack(
        "500 parameters of a stranger that are like each other", NEAR, "at most 100 are compared", missing_parameter
    ),
    Attack("500 tools of a stranger that are like each other", NEAR, "at most 100 are compared", missing_tool),
)
@pytest.mark.parametrize("letters", [50, 120])
def test_names_that_are_like_each_other(attack: Attack, letters: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: set[str] = set()
    ratio = SequenceMatcher.ratio

    def counted(self: SequenceMatcher[str]) -> float:
        compared.add(str(self.a))
        return ratio(self)

    monkeypatch.setattr(SequenceMatcher, "ratio", counted)
    attack.given([f"{'a' * letters}{i:03}" for i in range(500)], "a" * 60)
    assert len(compared) <= 100


@each(
    Attack("a program prints 60,000 numbers", SMALL, "less than a kilobyte", (printed, "1 " * (1 << 16))),
    Attack("a program prints 60,000 lines", SMALL, "less than a kilobyte", (printed, "1\n" * (1 << 16))),
    Attack("a program prints a long text", SMALL, "less than a kilobyte", (printed, "x" * (1 << 17))),
    Attack("a program returns a long list", SMALL, "less than a kilobyte",
           (returned, f"[{'1,' * (1 << 16)}1]")),
)  # fmt: skip
def test_a_long_output(attack: Attack) -> None:
    identity, output = attack.given
    assert len(repr(identity(output))) < 1024
