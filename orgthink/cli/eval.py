"""`orgthink eval`: problems × organizations → a run folder and a table."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, TypeVar

from tyro.conf import arg

from orgthink.cli import INTERRUPTED
from orgthink.cli.engines import engines
from orgthink.cli.options import Options, pair, warn
from orgthink.cli.progress import progress
from orgthink.cli.table import conditions, print_table
from orgthink.engines import EngineSpec
from orgthink.engines.engine import Engine
from orgthink.episode import Episode
from orgthink.errors import UserError, user_input
from orgthink.evaluation import Evaluation, broken, evaluate, in_order, jobs, lost, require_planned, summary_of, trouble
from orgthink.registry import default
from orgthink.store import RunFolder, require_vacant
from orgthink.tasks.task import Split

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Eval(Options):
    """Let organizations solve problems; print a table with 95 % intervals.

    Everything goes to a run folder as it happens. After Ctrl-C, a crash or `kill -9`, `--resume DIR` goes on.
    """

    task: str | None = None
    """Which problems; `math:FILE` takes those of a file of rows with `problem` and `answer`: .jsonl, .json or
    .parquet; `verl:FILE` those of a parquet file of verl's."""
    organizations: tuple[str, ...] = ("sequential", "parallel", "asyncthink")
    """Who solves them: names, or label=name to have one of them twice, with settings of its own (--set)."""
    models: Annotated[tuple[str, ...], arg(metavar="LABEL=MODEL[@URL]")] = ()
    """Models of their own for some organizations, by label: to compare models in one table."""
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
            plan = self.plan()
            warn((how.named(label) for label, how in plan.organizations.items()), plan.limits.capacity)
            return asyncio.run(conduct(plan, self.out or self._dated()))
        if self != Eval(resume=self.resume):
            raise UserError("--resume takes everything else from the folder: give it alone")
        folder = RunFolder.open(self.resume)
        return asyncio.run(conduct(folder.settings("eval", Evaluation), folder))

    def _dated(self) -> Path:
        task = self.named_task.partition(":")[0].replace("/", "-")  # `@0/2`
        return Path("runs") / f"{task}-{time.strftime('%Y%m%d-%H%M%S')}"

    @property
    def named_task(self) -> str:
        """The task, or else the default of an installed plug-in."""
        return self.task or default("task", "--task TASK")

    def plan(self) -> Evaluation:
        """UserError for anything that cannot be."""
        with user_input():
            organizations = self.organize(self.organizations, self.own())
            plan = Evaluation(
                task=self.named_task,
                organizations=organizations,
                n=self.n,
                engine=self.spec(),
                sampling=self.sampling(),
                roles=self.backed(organizations),
                limits=self.limits(),
                split=self.split,
                seed=self.seed,
                samples=self.samples,
                concurrency=self.concurrency,
            )
        jobs(plan)
        return plan

    def own(self) -> dict[str, EngineSpec]:
        """Engines of their own, by the organization's label."""
        found: dict[str, EngineSpec] = {}
        for given in self.models:
            label, model = pair(given, "--models", "LABEL=MODEL")
            if label in found:
                raise UserError(f"--models names {label} twice: an organization has one model")
            found[label] = self.served(model)
        return found


def own_engines(plan: Evaluation) -> dict[str, EngineSpec]:
    """Engines that organizations have to themselves, by label."""
    return {label: spec.engine for label, spec in plan.organizations.items() if spec.engine is not None}


async def conduct(plan: Evaluation, target: RunFolder | Path, *, overwrite: bool = False) -> int:
    """Make a new run at a path, or go on with one; print its table and return the exit code.

    `overwrite` deletes an earlier run at the path.
    """
    if isinstance(target, Path):
        require_vacant(target, overwrite=overwrite)
    else:
        episodes = list(target.episodes())
        require_planned({job.id for job in jobs(plan)}, target, episodes)
        if len(episodes) == len(jobs(plan)) and not any(map(broken, episodes)):
            return report(plan, target, episodes)
    own = own_engines(plan)
    async with engines([plan.engine, *own.values(), *(role.engine for role in plan.roles.values())]) as opened:
        roles = {name: opened[role.engine] for name, role in plan.roles.items()}
        others = {label: opened[spec] for label, spec in own.items()}
        engine = opened[plan.engine]
        if isinstance(target, Path):
            plan = replace(plan, engine=replace(plan.engine, model=plan.engine.model or engine.model))
            target = RunFolder.create(target, "eval", plan, overwrite=overwrite)
        folder = target
        ended = await interruptible(lambda stop: _evaluate(plan, engine, roles, others, folder, stop))
    return report(plan, folder, list(folder.episodes()) if ended is None else ended)


async def _evaluate(
    plan: Evaluation,
    engine: Engine,
    roles: dict[str, Engine],
    own: dict[str, Engine],
    folder: RunFolder,
    stop: asyncio.Event,
) -> list[Episode]:
    try:
        with progress(len(jobs(plan))) as ended:
            return await evaluate(plan, engine, folder, roles=roles, own=own, stop=stop, progress=ended)
    except OSError as error:
        again = f"what was written is whole; {_again(folder)}"
        raise UserError(f"{folder.path} cannot be written: {error.strerror or error}; {again}") from error


def report(plan: Evaluation, folder: RunFolder, episodes: list[Episode]) -> int:
    """Print the table, and how to go on if something is missing; return the exit code."""
    total = len(jobs(plan))
    if episodes:
        print_table(summary_of(plan, in_order(plan, episodes)), conditions(folder))
    failed = [episode for episode in episodes if broken(episode)]
    others = [episode for episode in episodes if lost(episode) and not broken(episode)]
    if others:
        why = f"{len(others)} of {total} episodes went on without an agent whose engine failed ({trouble(others[0])})"
        print(f"orgthink: {why}", file=sys.stderr)
    if len(episodes) < total:
        print(f"orgthink: stopped after {len(episodes)} of {total} episodes; {_again(folder)}", file=sys.stderr)
        return INTERRUPTED
    if failed:
        why = f"{len(failed)} of {total} episodes failed ({trouble(failed[0])})"
        print(f"orgthink: {why}; {_again(folder)}", file=sys.stderr)
    return int(bool(failed))


def _again(folder: RunFolder) -> str:
    return f"go on with: orgthink eval --resume {folder.path}"


async def interruptible(work: Callable[[asyncio.Event], Coroutine[object, object, T]]) -> T | None:
    """Do the work. Ctrl-C sets the event it is given, a second one cancels it: then there is no result."""
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
        if not task.cancelled():
            raise
        return None
    finally:
        loop.remove_signal_handler(signal.SIGINT)
