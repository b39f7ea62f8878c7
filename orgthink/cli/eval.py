"""`orgthink eval`: problems × organizations → a run folder and a table."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orgthink.cli.options import Options
from orgthink.cli.progress import progress
from orgthink.cli.table import conditions, print_table
from orgthink.engines import open_engine
from orgthink.engines.engine import Engine
from orgthink.errors import UserError, user_input
from orgthink.evaluate import Evaluation, broken, evaluate, finished, in_order, jobs, trouble
from orgthink.measure.summary import summarise
from orgthink.store import RunFolder, plain, require_vacant
from orgthink.tasks.task import Split

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
        return asyncio.run(conduct(folder.settings("eval", Evaluation), folder))

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
    elif len(finished(plan, target)) == len(jobs(plan)):
        return report(plan, target)
    engine = await open_engine(plan.engine)
    try:
        if isinstance(target, Path):
            plan = replace(plan, engine=replace(plan.engine, model=plan.engine.model or engine.model))
            target = RunFolder.create(target, "eval", plan, overwrite=overwrite)
        await interruptible(lambda stop: _evaluate(plan, engine, target, stop))
    finally:
        await engine.aclose()
    return report(plan, target)


async def _evaluate(plan: Evaluation, engine: Engine, folder: RunFolder, stop: asyncio.Event) -> None:
    try:
        with progress(len(finished(plan, folder)), len(jobs(plan))) as ended:
            await evaluate(plan, engine, folder, stop=stop, progress=ended)
    except OSError as error:
        again = f"what was written is whole; {_again(folder)}"
        raise UserError(f"{folder.path} cannot be written: {error.strerror or error}; {again}") from error


def report(plan: Evaluation, folder: RunFolder) -> int:
    """Print the table, and how to go on if something is missing; return the exit code."""
    episodes, total = list(folder.episodes()), len(jobs(plan))
    if episodes:
        print_table(summarise(in_order(plan, episodes)), conditions(plan, folder.config))
    failed = [episode for episode in episodes if broken(episode)]
    if len(episodes) < total:
        print(f"orgthink: stopped after {len(episodes)} of {total} episodes; {_again(folder)}", file=sys.stderr)
        return INTERRUPTED
    if failed:
        why = f"{len(failed)} of {total} episodes failed ({trouble(failed[0])})"
        print(f"orgthink: {why}; {_again(folder)}", file=sys.stderr)
    return int(bool(failed))


def _again(folder: RunFolder) -> str:
    return f"go on with: orgthink eval --resume {folder.path}"


async def interruptible(work: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Do the work. Ctrl-C sets the event it is given, a second one cancels it."""
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
        await task
    except asyncio.CancelledError:
        if not task.cancelled():
            raise
    finally:
        loop.remove_signal_handler(signal.SIGINT)
