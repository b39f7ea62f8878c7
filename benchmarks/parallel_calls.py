"""A manager's round of four calls compared with a round of one call, on the real organization, sandbox and engine.

The manager is scripted, so it makes exactly these calls. The duration of a round comes from the record: from the end of
the manager's reply to the injection of the responses.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from orgthink_pocket.shipped import MODELS
from orgthink_pocket.tasks.countdown import COUNTDOWN_MINI

from benchmarks.report import Line
from orgthink.engines.engine import Engine
from orgthink.engines.local.engine import LocalEngine
from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.grammar.toolcall import ToolCall, render_reply
from orgthink.organizations.paramanager import ParaManager
from orgthink.record.episode import Episode, Origin, Problem, Sampling, Status
from orgthink.runtime import Backing, Limits, attempt
from orgthink.tools.sandbox import Bubblewrap
from orgthink.tools.search import retriever_named, search_tool
from orgthink.tools.tool import FunctionTool, Tool

CALLS = 4
"""n_max: number of calls in a round."""
REPEATS = 5
"""Number of rounds of each kind. The kinds alternate, and the median counts."""
MODEL = "pocket-base"
TOKENS = 240
"""Token budget of an agent; its text would be longer."""

Call = tuple[str, dict[str, Any]]


def run() -> Iterator[Line]:
    yield from asyncio.run(_programs())
    yield from asyncio.run(_agents())
    yield asyncio.run(_overhead())
    yield asyncio.run(_start_up())


async def _programs() -> list[Line]:
    one, four = await _compared(("python", {"code": "import time; time.sleep(1)"}), {})
    conditions = (
        f"median of {REPEATS} rounds: one call {one:.3f} s, {CALLS} calls {four:.3f} s; bubblewrap, {CALLS} at once"
    )
    return [
        Line(f"round of {CALLS} programs that sleep 1 s ÷ that second", four, "< 1.15", four < 1.15, conditions),
        Line(f"round of {CALLS} programs that sleep 1 s ÷ of one", four / one, "< 1.15", four / one < 1.15, conditions),
    ]


async def _agents() -> list[Line]:
    engine = LocalEngine.open(MODELS / MODEL)
    try:
        one, four = await _compared(("standard_reasoner", {}), {"standard_reasoner": engine})
    finally:
        await engine.aclose()
    conditions = f"{MODEL} on `local`, {TOKENS} tokens each; median of {REPEATS} rounds: {one:.3f} and {four:.3f} s"
    return [Line(f"round of {CALLS} agents ÷ of one", four / one, "none: they share a machine", True, conditions)]


async def _compared(call: Call, engines: Mapping[str, Engine]) -> tuple[float, float]:
    """Seconds of a round of one call, and of a round of four. The first round of each kind is a warm-up."""
    took: dict[int, list[float]] = {1: [], CALLS: []}
    for _ in range(1 + REPEATS):
        for calls, seconds in took.items():
            episode = await _managed(_Rounds(prompts="pocket"), [[call] * calls], engines)
            assert all(trace.status is Status.OK or trace.steps == TOKENS for trace in episode.traces[1:]), episode
            seconds += _round_seconds(episode)
    return median(took[1][1:]), median(took[CALLS][1:])


async def _overhead() -> Line:
    """Calls that take no time, so the measured time is the executor's."""
    rounds = 12
    plan = [[("python", {"code": "1"})] * CALLS] * rounds
    episodes = [await _managed(_Idle(prompts="pocket"), plan, {}) for _ in range(20)]
    seconds = sum(sum(_round_seconds(episode)) for episode in episodes)
    each = seconds / (len(episodes) * rounds * CALLS) * 1e6
    conditions = (
        f"{len(episodes)} episodes of {rounds} rounds of {CALLS} calls that return at once; parsing, checks and record"
    )
    return Line("executor's overhead, µs a call", each, "≤ 1000", each <= 1000, conditions)


async def _start_up() -> Line:
    """Seconds from the call to the end of an empty program."""
    sandbox, alone, bare = Bubblewrap(max_parallel=CALLS), [], []
    for _ in range(1 + 2 * REPEATS):
        began = time.perf_counter()
        assert (await sandbox.run("")).status is Status.OK
        alone.append(time.perf_counter() - began)
        began = time.perf_counter()
        subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True)
        bare.append(time.perf_counter() - began)
    value, plain = (median(seconds[1:]) * 1e3 for seconds in (alone, bare))
    conditions = f"an empty program, median of {2 * REPEATS}; the same Python without a sandbox {plain:.0f} ms"
    return Line("start-up of the sandbox, ms", value, "none", True, conditions)


@dataclass(frozen=True)
class _Rounds(ParaManager):
    """The real tools. Every program of a round may run at the same time, regardless of the number of cores."""

    def resources(self) -> tuple[Tool, Tool]:
        sandbox = Bubblewrap(max_parallel=CALLS)

        async def python(code: str) -> Any:
            """Runs."""
            return await sandbox.run(code)

        return FunctionTool(python), search_tool(retriever_named("ledger"))


@dataclass(frozen=True)
class _Idle(ParaManager):
    """A tool that takes no time."""

    def resources(self) -> tuple[Tool, Tool]:
        async def python(code: str) -> str:
            """Returns."""
            return code

        return FunctionTool(python), search_tool(retriever_named("ledger"))


async def _managed(organization: ParaManager, plan: list[list[Call]], engines: Mapping[str, Engine]) -> Episode:
    """Run an episode whose manager makes these calls round by round, and then ends."""
    replies = [[ToolCall(name, arguments) for name, arguments in calls] for calls in plan]
    says = [*(render_reply("", calls) for calls in replies), render_reply("", [ToolCall("final_answer", {})])]
    turns = [Turn(text, seconds=0) for text in (*says, "<ANSWER> 1 </ANSWER>")]
    manager = Backing(ScriptedEngine(turns), Sampling(10_000))
    roles = {role: Backing(engine, Sampling(TOKENS, temperature=0.0)) for role, engine in engines.items()}
    problem: Problem = next(COUNTDOWN_MINI.problems("test", 0))
    return await attempt(organization, problem, manager, roles=roles, limits=Limits(capacity=1 + CALLS))


def _round_seconds(episode: Episode) -> list[float]:
    """Seconds of each round, in order. The text injected after the last round is left out."""
    spans = episode.root.spans
    took = [
        response.start - reply.end
        for reply, response in pairwise(spans)
        if reply.origin is Origin.SAMPLED and response.origin is Origin.INJECTED
    ]
    return took[:-1]
