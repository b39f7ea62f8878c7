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
from orgthink.cli.table import conditions, print_table
from orgthink.engines import open_engine
from orgthink.episode import Episode
from orgthink.errors import UserError, user_input
from orgthink.evaluate import Evaluation, broken, evaluate, jobs, trouble
from orgthink.measure.summary import summarise
from orgthink.store import RunFolder, plain, require_vacant
from orgthink.tasks.task import Split

T = TypeVar("T")

INTERRUPTED = 130
"""Exit code after Ctrl-C."""


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
                organizations={name: plain(self.organize(name, spec)) for name in self.organizations},
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


async def conduct(plan: Evaluation, target: RunFolder | Path, *, overwrite: bool = False) -> int:
    """Make a new run at a path, or go on with one; print its table and return the exit code.

    `overwrite` deletes an earlier run at the path.
    """
    if isinstance(target, Path):
        require_vacant(target, overwrite=overwrite)
    engine = await open_engine(plan.engine)
    try:
        if isinstance(target, Path):
            plan = replace(plan, engine=replace(plan.engine, model=plan.engine.model or engine.model))
            target = RunFolder.create(target, "eval", plan, overwrite=overwrite)
        folder = target
        total, done = len(jobs(plan)), sum(not broken(episode) for episode in folder.episodes())

        async def work(stop: asyncio.Event) -> list[Episode]:
            with progress(done, total) as ended:
                return await evaluate(plan, engine, folder, stop=stop, progress=ended)

        episodes = await interruptible(work)
    finally:
        await engine.aclose()
    return report(folder, plan, episodes, total)


def report(folder: RunFolder, plan: Evaluation, episodes: list[Episode] | None, total: int) -> int:
    """Print the table, and how to go on if something is missing; return the exit code."""
    again = f"go on with: orgthink eval --resume {folder.path}"
    if episodes is not None:
        print_table(summarise(episodes), conditions(plan, folder.config))
    done = sum(1 for _ in folder.episodes()) if episodes is None else len(episodes)
    if done < total:
        print(f"orgthink: stopped after {done} of {total} episodes; {again}", file=sys.stderr)
        return INTERRUPTED
    failed = [episode for episode in episodes or () if broken(episode)]
    if failed:
        print(f"orgthink: {len(failed)} of {total} episodes failed ({trouble(failed[0])}); {again}", file=sys.stderr)
    return int(bool(failed))


async def interruptible(work: Callable[[asyncio.Event], Coroutine[Any, Any, T]]) -> T | None:
    """Do the work. Ctrl-C sets the event it is given, a second one cancels it and gives `None`."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    task = loop.create_task(work(stop))

    def interrupt() -> None:
        if stop.is_set():
            task.cancel()
            return
        stop.set()
        print("orgthink: finishing what is under way; Ctrl-C again stops now", file=sys.stderr, flush=True)

    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        return await task
    except asyncio.CancelledError:
        return None
    finally:
        loop.remove_signal_handler(signal.SIGINT)
