"""What it takes to end an agent: the time of an abort in decoding steps, and the tokens sampled after it."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from pathlib import Path
from statistics import median

from benchmarks.report import Line
from orgthink.engines import MODELS
from orgthink.engines.engine import Context
from orgthink.engines.local.engine import LocalEngine
from orgthink.engines.vllm import VllmEngine
from orgthink.record.episode import Message, Sampling

MODEL, ROWS, ABORTED, TOKENS = "pocket-organizer", 64, 16, 900
FIRST, BETWEEN = 5, 2
"""Tokens of a stream before the first abort, and more of them before each further one."""


def run() -> list[Line]:
    return asyncio.run(_measure())


async def _measure() -> list[Line]:
    folder, on_vllm = Path(MODELS[MODEL]), importlib.util.find_spec("vllm") is not None
    engine = await VllmEngine.open(folder, max_num_seqs=ROWS) if on_vllm else LocalEngine.open(folder, slots=ROWS)
    messages = (Message("user", "countdown 2 3 6 9 12 = 21"),)
    context = Context(messages, [engine.prompt(messages)])
    steps: list[float] = []
    aborts: list[float] = []

    async def read(row: int) -> int:
        """The number of tokens that a stream delivered: all of them, or those up to its abort."""
        stream, received, start = engine.stream(context, Sampling(TOKENS, seed=row)), 0, time.perf_counter()
        async for chunk in stream:
            received += len(chunk.pieces)
            if row < ABORTED and received >= FIRST + row * BETWEEN:
                steps.append((time.perf_counter() - start) / received)
                start = time.perf_counter()
                await stream.aclose()
                aborts.append(time.perf_counter() - start)
                break
        return received

    received = sum(await asyncio.gather(*map(read, range(ROWS))))
    lost = (engine.counters.sampled_tokens - received) / ABORTED
    await engine.aclose()
    took = median(aborts) / median(steps)
    where = "vLLM" if on_vllm else "local"
    conditions = f"{MODEL}, {ABORTED} of {ROWS} streams, one after the other"
    return [
        Line(f"seconds of an abort ÷ of a decoding step, {where}", took, "≤ 2", took <= 2, conditions),
        Line(f"tokens sampled after each abort, {where}", lost, "≤ 2", lost <= 2, conditions),
    ]
