"""`orgthink eval`: problems × organizations → a run folder and a table."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from orgthink.cli.options import Options
from orgthink.cli.progress import progress
from orgthink.cli.table import print_table
from orgthink.engines import open_engine
from orgthink.episode import Episode
from orgthink.errors import UserError, user_input
from orgthink.evaluate import Evaluation, broken, evaluate, jobs
from orgthink.store import RunFolder, require_vacant
from orgthink.tasks.task import Split

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Eval(Options):
    """Let organizations solve problems; print a table with 95 % intervals.

    Everything goes to a run folder as it happens. After Ctrl-C, a crash or `kill -9`, `--resume DIR` goes on.
    """

    task: str = "countdown-mini"
    """Which problems."""
    organizations: tuple[str, ...] = ("sequential", "parallel", "asyncthink")
    """Who solves them."""
    n: int = 100
    """How many different problems."""
    split: Split = "test"
    """`test` problems are held out from training."""
    samples: int = 1
    """Attempts of each organization at each problem."""
    concurrency: int = 64
    """Episodes alive at once."""
    out: Path | None = None
    """New run folder; without it one under runs/, named after the task and the time."""
    resume: Path | None = None
    """Run folder to go on with; it knows everything else."""

    def __call__(self) -> int:
        if self.resume is None:
            path = self.out or Path("runs") / f"{self.task}-{time.strftime('%Y%m%d-%H%M%S')}"
            return asyncio.run(conduct(self.plan(), path))
        if self != Eval(resume=self.resume):
            raise UserError("--resume takes everything else from the folder: give it alone")
        folder = RunFolder.open(self.resume)
        return asyncio.run(conduct(folder.settings(Evaluation), folder))

    def plan(self) -> Evaluation:
        """UserError for anything that cannot be."""
        spec = self.spec()
        for name in self.organizations:
            if self.organizations.count(name) > 1:
                raise UserError(f"organization {name} is named twice")
        with user_input():
            plan = Evaluation(
                task=self.task,
                organizations={name: self.settings(name, spec) for name in self.organizations},
                n=self.n,
                engine=spec,
                sampling=self.sampling(),
                limits=self.limits(),
                split=self.split,
                seed=self.seed,
                samples=self.samples,
                concurrency=self.concurrency,
            )
        jobs(plan)
        return plan


async def conduct(plan: Evaluation, target: RunFolder | Path, *, replace_run: bool = False) -> int:
    """Make a new run at a path, or go on with one; print its table and return the exit code."""
