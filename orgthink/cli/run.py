"""`orgthink run`: one problem, watched."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from orgthink.cli.lanes import lanes
from orgthink.cli.options import Options
from orgthink.engines import open_engine
from orgthink.episode import Episode, Problem
from orgthink.errors import UserError
from orgthink.evaluate import broken, distinct, grade, trouble
from orgthink.measure.latency import critical_path
from orgthink.measure.usage import sampled_tokens
from orgthink.runtime.agent import Role
from orgthink.runtime.attempt import Organization, attempt
from orgthink.runtime.session import Limits
from orgthink.tasks import TASKS

FREE = "free"
"""Task of a problem that the user typed: nobody can grade it."""


@dataclass(frozen=True, kw_only=True)
class Run(Options):
    """Let an organization solve one problem, and watch its agents fork and join."""

    problem: Annotated[Positional[str | None], arg(metavar="[PROBLEM]")] = None
    """The problem, in your words; without it one of a task."""
    task: str = "countdown-mini"
    """Task to draw a problem from, by --seed."""
    organization: str = "asyncthink"
    """Who solves it."""

    def __call__(self) -> int:
        return asyncio.run(self._run())

    async def _run(self) -> int:
        spec = self.spec()
        organization, problem, sampling, limits = (
            self.organize(self.organization, spec),
            self.find(),
            self.sampling(),
            self.limits(),
        )
        engine = await open_engine(spec)
        try:
            return tell(await watched(organization, problem, Role(engine, sampling), limits))
        finally:
            await engine.aclose()

    def find(self) -> Problem:
        """What is to be solved."""
        if self.problem is None:
            return distinct(self.task, "test", self.seed, 1)[0]
        if not self.problem.strip():
            raise UserError("the problem is empty")
        return Problem(id=FREE, task=FREE, text=self.problem, terse=self.problem)


async def watched(organization: Organization, problem: Problem, role: Role, limits: Limits) -> Episode:
    """An attempt, shown while it happens, with its grade if the problem is a task's."""
    print(problem.text)
    with lanes() as watch:
        episode = await attempt(organization, problem, role, limits=limits, watch=watch)
    return grade(episode, TASKS[problem.task]) if problem.task in TASKS else episode


def tell(episode: Episode) -> int:
    """Print what came of it; return the exit code."""
    print(f"\nanswer:\n{episode.answer}" if episode.answer is not None else "\nno answer")
    facts = [
        f"{critical_path(episode)} steps on the critical path",
        f"{sampled_tokens(episode)} tokens",
        f"{episode.seconds:.2f} s",
    ]
    if episode.grade is not None:
        facts.insert(0, f"{episode.grade.correct} of {episode.grade.required} right")
    facts += [f"{fault.kind} by {fault.agent}" for fault in episode.format_faults]
    print(", ".join(facts))
    if broken(episode):
        print(f"orgthink: {trouble(episode)}", file=sys.stderr)
    return int(broken(episode))
