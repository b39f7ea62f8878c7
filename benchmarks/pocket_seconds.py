"""What organizing costs in seconds on a shipped model, whose rows are not free: AsyncThink and sequential thinking, one
episode at a time."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from benchmarks.report import Line
from orgthink.engines import MODELS
from orgthink.engines.local.engine import LocalEngine
from orgthink.measure.latency import critical_path
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.sequential import Sequential
from orgthink.record.episode import Problem, Sampling
from orgthink.runtime import Backing, Limits, attempt
from orgthink.tasks import task_named

PROBLEMS = 30
REPEATS = 3
"""Number of runs of each organization. They alternate, and the fastest counts."""
TASK = "countdown-mini"


class Thinker(NamedTuple):
    """An organization with its model and the budget of an agent."""

    organization: AsyncThink | Sequential
    model: str
    tokens: int


THINKERS = (
    Thinker(Sequential(prompts="pocket"), "pocket", 480),
    Thinker(AsyncThink(prompts="pocket"), "pocket-organizer", 192),
)


class Total(NamedTuple):
    """All problems, one after the other."""

    seconds: float
    steps: int
    """On the critical paths."""
    tokens: int
    solved: int
    """Episodes in which all is correct."""

    @property
    def step(self) -> float:
        """Milliseconds of a step on the critical path, prefill and runtime included."""
        return 1e3 * self.seconds / self.steps


def run() -> list[Line]:
    return asyncio.run(_measure())


async def _measure() -> list[Line]:
    task = task_named(TASK)
    problems = list(itertools.islice(task.problems("test", 0), PROBLEMS))
    engines = [LocalEngine.open(Path(MODELS[thinker.model])) for thinker in THINKERS]
    totals = list[list[Total]]()
    for _ in range(1 + REPEATS):  # the first one warms up
        totals.append([await _total(*pair, problems) for pair in zip(THINKERS, engines, strict=True)])
    alone, asyncthink = (min(runs) for runs in zip(*totals[1:], strict=True))
    for engine in engines:
        await engine.aclose()
    models = " and ".join(f"{thinker.model} with {thinker.tokens} tokens" for thinker in THINKERS)
    load = (
        f"{TASK}, {PROBLEMS} problems, greedy, capacity 4; {models}; {torch.get_num_threads()} threads; {alone.solved}"
        f" and {asyncthink.solved} solved; {asyncthink.steps / alone.steps:.2f} in steps,"
        f" {asyncthink.tokens / alone.tokens:.2f} in tokens; a step takes {alone.step:.2f} ms with one row,"
        f" {asyncthink.step:.2f} ms with {asyncthink.tokens / asyncthink.steps:.1f} on average; fastest of {REPEATS}"
    )
    return [
        Line(
            "AsyncThink ÷ sequential, seconds of an episode on a pocket model",
            asyncthink.seconds / alone.seconds,
            "none",
            True,
            load,
        )
    ]


async def _total(thinker: Thinker, engine: LocalEngine, problems: Sequence[Problem]) -> Total:
    backing = Backing(engine, Sampling(thinker.tokens, temperature=0.0))
    limits = Limits(capacity=4, max_tokens=thinker.tokens)
    start = time.perf_counter()
    episodes = [await attempt(thinker.organization, problem, backing, limits=limits) for problem in problems]
    seconds = time.perf_counter() - start
    grades = [
        task_named(TASK).grade(problem, episode.answer) for problem, episode in zip(problems, episodes, strict=True)
    ]
    return Total(
        seconds,
        sum(map(critical_path, episodes)),
        sum(trace.steps for episode in episodes for trace in episode.traces),
        sum(grade.all_correct for grade in grades),
    )
