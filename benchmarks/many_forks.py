"""An episode of thousands of forks: the time of a fork must not grow with their number."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator

from benchmarks.report import Line
from orgthink.engines.engine import Chunk, Context, FinishReason
from orgthink.engines.scripted import ScriptedEngine, pieces
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Episode, Problem, Sampling
from orgthink.runtime import Backing, Limits, attempt
from orgthink.runtime.clock import run_virtual

FEW, MANY = 1_000, 5_000
CAPACITY = 8
"""Workers at once, the organizer included; further forks wait for a place."""


class Organizing(ScriptedEngine):
    """Forks and joins one worker after another, without a look at the context, whose length would cost time as well."""

    def __init__(self, forks: int) -> None:
        super().__init__([])
        keys = [f"{i % 9 + 1}" for i in range(forks)]
        self._says = iter([*(f" <FORK-{key}> q </FORK-{key}> <JOIN-{key}>" for key in keys), " <ANSWER> a </ANSWER>"])

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        organizes = "</RETURN>" not in sampling.stop
        for piece in pieces(next(self._says) if organizes else " <RETURN> r </RETURN>"):
            await asyncio.sleep(1)
            yield Chunk((piece,), (0,), (0.0,))
        yield Chunk((), (), (), FinishReason.EOS)


def run() -> list[Line]:
    _seconds(FEW)  # warm up
    few, many = _seconds(FEW), _seconds(MANY)
    ratio = (many / MANY) / (few / FEW)
    conditions = f"an organizer that forks and joins in turn, in virtual time; {many / MANY * 1e6:.0f} µs a fork"
    return [
        Line(f"time of a fork, episode of {MANY:,} ÷ of {FEW:,}", ratio, "≤ 1.2 (linear)", ratio <= 1.2, conditions)
    ]


def _seconds(forks: int) -> float:
    start = time.process_time()
    play(forks)
    return time.process_time() - start


def play(forks: int) -> Episode:
    """An episode of so many forks, in virtual time."""
    limits = Limits(CAPACITY, turns=4 * forks)
    backing, problem = Backing(Organizing(forks), Sampling(1_000)), Problem("p", "countdown-mini", "question")
    return run_virtual(attempt(AsyncThink(overflow="queue"), problem, backing, limits=limits))
