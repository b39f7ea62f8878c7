"""Overhead of the runtime: streams of the scripted engine with agents around them, less the same streams alone."""

from __future__ import annotations

import asyncio
import gc
import resource
import time
from pathlib import Path

from benchmarks.report import Line
from orgthink.engines.engine import Context
from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Message, Problem, Sampling
from orgthink.runtime import Backing, Limits, attempt
from orgthink.runtime.clock import run_virtual

WORDS = 60
"""Approximate number of tokens of each agent."""

LARGEST = 50_000

PROBLEM = Problem("p", "countdown-mini", "question")
ORGANIZER = (" w" * (WORDS // 2) + " <FORK-1> q </FORK-1>" + " w" * (WORDS // 2) + " <JOIN-1>", " <ANSWER> a </ANSWER>")
WORKER = " w" * WORDS + " <RETURN> r </RETURN>"


def run() -> list[Line]:
    lines = []
    per_agent = {}
    for agents in (1_000, 10_000):
        seconds, chunks, per_agent[agents] = _organizations(agents // 2)
        alone = _bare(agents // 2) / chunks * 1e6
        overhead = seconds / chunks * 1e6 - alone
        lines.append(
            Line(
                f"runtime overhead, {agents:,} live agents",
                overhead,
                "≤ 10 µs per chunk",
                overhead <= 10,
                f"{chunks:,} chunks, virtual time, CPU time measured; the scripted engine alone takes {alone:.0f} µs",
            )
        )
    _organizations(LARGEST // 2)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    ratio = per_agent[10_000] / per_agent[1_000]
    return [
        *lines,
        Line(
            "memory per agent, 10,000 ÷ 1,000 live agents",
            ratio,
            "≤ 1.1 (linear)",
            ratio <= 1.1,
            f"peak {per_agent[10_000] / 1024:.0f} KiB an agent, its record included",
        ),
        Line(
            f"GiB of the process with {LARGEST:,} live agents",
            peak,
            "≤ 4",
            peak <= 4,
            f"some {WORDS} tokens an agent; the packages that are imported and the scripted engine included",
        ),
    ]


def _engine(episodes: int) -> ScriptedEngine:
    """Turns in the order in which episodes that run in lockstep request them."""
    says = [ORGANIZER[0]] * episodes + [WORKER] * episodes + [ORGANIZER[1]] * episodes
    return ScriptedEngine([Turn(text) for text in says])


def _organizations(episodes: int) -> tuple[float, int, float]:
    """Run episodes concurrently. Returns seconds, chunks, and the growth of the process in bytes per agent."""

    async def main(engine: ScriptedEngine) -> list[object]:
        backing = Backing(engine, Sampling(10 * WORDS))
        jobs = (attempt(AsyncThink(), PROBLEM, backing, limits=Limits(capacity=2), sample=i) for i in range(episodes))
        return await asyncio.gather(*jobs)

    engine = _engine(episodes)
    gc.collect()
    before = _resident()
    started = time.process_time()
    run_virtual(main(engine))
    seconds = time.process_time() - started
    peak = (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    )  # the larger run comes second, so its peak is its own
    return seconds, len(engine.sampled), (peak - before) / (2 * episodes)


def _resident() -> int:
    """Current memory of the process in bytes (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _bare(episodes: int) -> float:
    """Seconds of the same streams without agents."""

    async def drain(engine: ScriptedEngine, context: Context) -> None:
        async for _ in engine.stream(context, Sampling(10 * WORDS)):
            pass

    async def main(engine: ScriptedEngine) -> None:
        for _ in range(3):
            context = Context((Message("user", "q"),), [engine.prompt((Message("user", "q"),))])
            await asyncio.gather(*(drain(engine, context) for _ in range(episodes)))

    engine = _engine(episodes)
    gc.collect()
    started = time.process_time()
    run_virtual(main(engine))
    return time.process_time() - started
