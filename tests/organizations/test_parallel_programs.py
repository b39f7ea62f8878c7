"""The calls of a round run side by side in the real sandbox: each program says when it was at work."""

from __future__ import annotations

from dataclasses import dataclass

from managed import PRICES
from terse import TERSE

from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.grammar.toolcall import CallStatus, ToolCall, render_reply
from orgthink.measure.orchestration import rounds
from orgthink.organizations.paramanager import ParaManager
from orgthink.record.episode import Episode, Problem, Sampling, Trace
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.tools.python import python_tool
from orgthink.tools.sandbox import Bubblewrap
from orgthink.tools.search import retriever_named, search_tool
from orgthink.tools.tool import Tool

PROBLEM = Problem("p", "sums", "sum 3 + 4")
PROGRAM = "import time\nprint(time.monotonic())\ntime.sleep({seconds})\nprint(time.monotonic())"


@dataclass(frozen=True)
class Managed(ParaManager):
    """With a place for every program of a round, on however few cores."""

    prompts: str = TERSE

    def resources(self) -> tuple[Tool, Tool]:
        return python_tool(Bubblewrap(seconds=120, max_parallel=4)), search_tool(retriever_named(PRICES))


async def round_of(programs: list[str]) -> Episode:
    calls = [ToolCall("python", {"code": code}) for code in programs]
    says = [render_reply("r", calls), render_reply("r", [ToolCall("final_answer", {})]), "<ANSWER> 7 </ANSWER>"]
    engine = ScriptedEngine([Turn(text, seconds=0) for text in says])
    return await attempt(Managed(), PROBLEM, Backing(engine, Sampling(1000)), limits=Limits(capacity=2))


def at_once(spans: list[tuple[float, float]]) -> bool:
    """Whether there was a moment within all of them."""
    return max(begin for begin, _ in spans) < min(end for _, end in spans)


def span(trace: Trace) -> tuple[float, float]:
    return trace.start, trace.end


async def test_four_programs_of_a_round_are_at_work_at_once():
    """However long a busy machine takes to start them: if they do not meet, longer ones do, unless they take turns."""
    for seconds in (0.5, 2, 8):
        episode = await round_of([PROGRAM.format(seconds=seconds)] * 4)
        told = rounds(episode)[0].responses
        assert [response.status for response in told] == [CallStatus.OK] * 4, told
        assert at_once([span(trace) for trace in episode.traces[1:]]), "the record says so too"
        clocks = [tuple(map(float, response.value.split())) for response in told]
        if met := at_once(clocks):  # type: ignore[arg-type]  # two numbers each
            break
    assert met, clocks
