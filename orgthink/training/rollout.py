"""Rollouts: the same organizations that serve users attempt training problems in groups."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from orgthink.engines.engine import Engine
from orgthink.episode import Episode, Problem, Sampling
from orgthink.errors import UserError
from orgthink.evaluate import MOST_REPEATS, OrganizationSpec
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.tasks import task_named


@dataclass(frozen=True, slots=True)
class Rollout:
    """What is attempted at each step, by whom, and within which budgets."""

    task: str
    """Name of the task."""
    organization: OrganizationSpec
    """Who works on its problems."""
    limits: Limits = field(default_factory=Limits)
    """What an episode may use; `agent_tokens` is a total for each agent."""
    max_tokens: int = 512
    """Tokens of a segment: a worker's, or the organizer's up to its next Join, where the budget is renewed."""
    temperature: float = 1.0
    """Of the sampling; nothing else truncates it, so importance ratios are unbiased."""
    problems: int = 32
    """Different problems a step."""
    group: int = 8
    """G: attempts at each."""

    def __post_init__(self) -> None:
        for name in ("max_tokens", "problems"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least 1")
        if self.group < 2:
            raise ValueError(f"group is {self.group}: an advantage is relative to others, so it takes at least 2")
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature is {self.temperature}: training samples, so it must be above 0")


def batches_of_problems(plan: Rollout, seed: int, done: int = 0) -> Iterator[list[Problem]]:
    """The problems of each step, different within a step; `done` steps are passed over.

    UserError if the task has too few.
    """
    stream = task_named(plan.task).problems("train", seed)

    def draw() -> Iterator[list[Problem]]:
        while True:
            chosen: dict[str, Problem] = {}
            repeats = 0
            while len(chosen) < plan.problems:
                problem = next(stream)
                repeats = repeats + 1 if problem.id in chosen else 0
                if repeats == MOST_REPEATS:
                    raise UserError(f"{plan.task} has only {len(chosen)} different problems, not {plan.problems}")
                chosen.setdefault(problem.id, problem)
            yield list(chosen.values())

    return islice(draw(), done, None)


async def roll_out(plan: Rollout, problems: Sequence[Problem], engine: Engine, seed: int) -> list[Episode]:
    """Episodes, G for each problem; not graded yet."""
    organization = plan.organization.named(plan.organization.organization)
    backing = Backing(engine, Sampling(plan.max_tokens, plan.temperature, seed=seed))
    return await asyncio.gather(
        *(
            attempt(organization, problem, backing, limits=plan.limits, sample=sample)
            for problem in problems
            for sample in range(plan.group)
        )
    )
