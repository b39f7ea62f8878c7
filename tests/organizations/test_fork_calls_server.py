"""Fork and join as native calls of a chat server: what is sent, what comes back, and who speaks meanwhile."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from loopback import MODEL, Exchange, Play, loopback, says
from test_native_calls import calling, cut, delta

from orgthink.engines.endpoint.client import EndpointEngine
from orgthink.grammar.fork_calls import FORK_TOOLS
from orgthink.grammar.toolcall import ToolCall
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Episode, Problem, Sampling
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits

PROBLEM = Problem("p", "countdown", "The question.")
WORKERS = 4


def called(*calls: ToolCall) -> list[dict[str, Any]]:
    """Fragments of calls, as servers stream them."""
    return [part for i, call in enumerate(calls) for part in cut(i, call, f"id{i}")]


FORKS = called(*(ToolCall("fork", {"task": f"q{i}."}) for i in range(1, 5)))
JOINS = called(*(ToolCall("join", {"id": i}) for i in range(1, 5)))


class Meeting:
    """Workers who go on once the organizer speaks, which waits until all of them have begun."""

    def __init__(self) -> None:
        self.begun, self.organizer_speaks = asyncio.Semaphore(0), asyncio.Event()

    def worker(self, i: int) -> Play:
        async def play(exchange: Exchange) -> None:
            await exchange.begin()
            await exchange.say("found ")
            self.begun.release()
            await self.organizer_speaks.wait()
            await exchange.say(f"r{i}")
            await exchange.say("", "stop")
            await exchange.end()

        return play

    async def meanwhile(self, exchange: Exchange) -> None:
        await exchange.begin()
        for _ in range(WORKERS):
            await self.begun.acquire()
        await exchange.event(delta(content="meanwhile"))
        self.organizer_speaks.set()
        for part in JOINS:
            await exchange.event(delta(part))
        await exchange.event(delta(finish="tool_calls"))
        await exchange.end()


async def test_four_workers_are_at_work_while_the_organizer_speaks() -> None:
    meeting = Meeting()
    workers = [(f"Subtask: q{i}.", meeting.worker(i)) for i in range(1, WORKERS + 1)]
    plays = [
        ("main process", calling(*FORKS)),
        *workers,
        ('"value": "4"', meeting.meanwhile),
        ("r4", says("<ANSWER> 7 </ANSWER>")),
    ]
    async with asyncio.timeout(30), loopback(*plays) as server:
        engine = await EndpointEngine.open(server.url, MODEL)
        work = attempt(AsyncThink(protocol="auto"), PROBLEM, Backing(engine, Sampling(200)), limits=Limits(5))
        episode: Episode = await work
        await engine.aclose()
    assert episode.answer == "7" and not episode.format_faults
    assert [trace.returned for trace in episode.traces[1:]] == [f"found r{i}" for i in range(1, 5)]
    bodies = [exchange.body for exchange in server.exchanges]
    first, last = bodies[0], bodies[-1]
    assert [tool["function"] for tool in first["tools"]] == list(FORK_TOOLS)
    assert "<tool_call>" not in first["messages"][0]["content"]
    assert all("tools" not in body for body in bodies if "Subtask" in body["messages"][0]["content"])
    roles = [turn["role"] for turn in last["messages"]]
    assert roles == ["user", "assistant", *["tool"] * 4, "assistant", *["tool"] * 4], "all of it native"
    assert [json.loads(turn["content"])["value"] for turn in last["messages"] if turn["role"] == "tool"] == [
        "1", "2", "3", "4", "found r1", "found r2", "found r3", "found r4"
    ]  # fmt: skip


async def test_a_wrong_call_goes_back_as_text_and_the_next_turn_is_native_again() -> None:
    wrong = [*called(ToolCall("fork", {"task": "q1."})), {"index": 1, "function": {"name": "join", "arguments": "{1"}}]
    plays = [
        ("main process", calling(*wrong)),
        ("Subtask: q1.", says("r1")),
        ("not JSON", calling(*called(ToolCall("join", {"id": 1})))),
        ("r1", says("<ANSWER> 7 </ANSWER>")),
    ]
    async with loopback(*plays) as server:
        engine = await EndpointEngine.open(server.url, MODEL)
        episode = await attempt(AsyncThink(protocol="auto"), PROBLEM, Backing(engine, Sampling(200)))
        await engine.aclose()
    assert episode.answer == "7" and [fault.detail[:1] for fault in episode.format_faults] == ["{"]
    roles = [turn["role"] for turn in server.exchanges[-1].body["messages"]]
    assert roles == ["user", "assistant", "user", "assistant", "tool"]
