"""The shipped model at work, for the tests that hold it to its promises."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from orgthink_pocket.tasks.countdown import COUNTDOWN_MINI

from orgthink.engines.engine import Engine
from orgthink.evaluation.grading import grade
from orgthink.evaluation.plan import distinct
from orgthink.record.episode import Episode, Sampling
from orgthink.runtime import Backing, Limits, Organization, attempt
from orgthink.tasks.task import Task

TOKENS = 480
"""A budget that lets every role finish: a whole scan and its answer take about 320."""


async def solve(
    engine: Engine,
    organization: Organization,
    n: int,
    capacity: int = 1,
    *,
    tokens: int = TOKENS,
    temperature: float = 0,
    task: Task = COUNTDOWN_MINI,
) -> Sequence[Episode]:
    """Graded attempts at the first n held-out problems, all at once; greedy unless a temperature says otherwise."""
    backing = Backing(engine, Sampling(tokens, temperature, seed=0))
    limits = Limits(capacity=capacity, max_tokens=tokens)
    problems = distinct(task.name, "test", 0, n)
    episodes = await asyncio.gather(*(attempt(organization, p, backing, limits=limits) for p in problems))
    return [grade(episode, task) for episode in episodes]
