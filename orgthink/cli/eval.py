"""`orgthink eval`: problems × organizations → a run folder and a table."""

from __future__ import annotations

import threading
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import arg

from orgthink.cli.options import REPEATS, Options, read_prices
from orgthink.cli.running import (
    exit_code,
    interruptible,
    note,
    price_note,
    resumed,
    return_notes,
    settings_of,
    stoppable,
    written,
)
from orgthink.cli.table import conditions, print_table
from orgthink.evaluation.compatibility import pool_warning
from orgthink.evaluation.matching import matched
from orgthink.evaluation.plan import Evaluation, Resolved, resolve
from orgthink.evaluation.run import described, evaluate, opened, require_planned, spending
from orgthink.export.trackers import choose_tracker, require_tracker
from orgthink.record.episode import Episode
from orgthink.record.folder import RunFolder, dated, require_vacant
from orgthink.record.guard import engine_failed, failed_agents, failure_message, unanswered
from orgthink.runtime.clock import run_main
from orgthink.tasks import task_named
from orgthink.tasks.task import Split
from orgthink.util.errors import required, user_input
from orgthink.util.terminal import progress


@dataclass(frozen=True, kw_only=True)
class Eval(Options):
    """Let organizations solve problems; print a table with 95 % intervals.

    Episodes are stored as they end. After Ctrl-C, a crash or `kill -9`, `--resume DIR` goes on.
    """

    task: str | None = None
    """Task, such as countdown; a file of rows with questions and answers (.jsonl, .json, .csv, .parquet); `hf:NAME`, a
    data set of the hub; `verl:FILE`, a parquet file of verl's; `bench:NAME`, a named benchmark."""
    grader: str | None = None
    """What grades the rows of a table: math, exact, contains, choice, code or judge=MODEL@URL; without it their answers
    decide. Other tasks have their own, which this one replaces."""
    organizations: tuple[str, ...] = ("sequential", "parallel", "asyncthink")
    """Names, or label=name to have one of them twice, with settings of its own (--set)."""
    models: Annotated[tuple[str, ...], arg(metavar="LABEL=MODEL[@URL]")] = ()
    """Models of their own for some organizations, by label: to compare models in one table."""
    n: int | None = None
    """Number of different problems, all if the task has fewer; without it 100, or a benchmark's convention."""
    split: Split = "test"
    """`test` problems are held out from training."""
    samples: int | None = None
    """k: attempts of each organization at each problem; without it 1, or a benchmark's convention."""
    concurrency: int = 64
    """Episodes that run at once."""
    prices: Path | None = None
    """TOML or JSON file with dollars for a million tokens of each model: `["NAME"]`, `input`, `output` and, if it is
    another price, `cached`. The table then has a column of dollars."""
    max_dollars: float | None = None
    """Dollars that all episodes together may cost: no episode starts that would probably exceed them. --resume takes a
    higher limit."""
    max_total_tokens: int | None = None
    """Tokens that all episodes together may sample, in the same way."""
    match: Literal["tokens", "path"] | None = None
    """Choose the votes or the max_tokens of each further organization so that its mean tokens, or its mean critical
    path, agree with those of the first one, on problems that are not evaluated."""
    out: Path | None = None
    """New run folder; without it one under runs/, named after the task and the time."""
    log: str | None = None
    """Log each episode's numbers, and the table at the end, to `wandb`, `tensorboard`, `trackio`, `mlflow` or your own
    tracker as well. A resumed run goes on there."""
    resume: Path | None = None
    """Run folder to go on with. Its settings hold; limits on spending may be others for this time."""

    def __call__(self) -> int:
        require_tracker(self.log)
        if self.resume is None:
            resolved = resolve(self.plan())
            plan, out = resolved.plan, self.out or dated(resolved.plan.task)
            taken = task_named(plan.task).taken(plan.split)
            note(taken and f"{self.task}: {taken}", _problems_note(plan))
            note(*(pool_warning(each, plan.limits.capacity) for each in resolved.organizations.values()))
            if self.match is not None:
                require_vacant(out)
                note(f"settings for equal {self.match} are chosen on other problems, in {out}-development")
                plan = run_main(matched(plan, self.match, out.with_name(f"{out.name}-development")))
                note(*(f"{label}: {how}" for label, how in plan.matched.items()))
                resolved = resolve(plan)
            return run_main(conduct(resolved, out, log=self.log, repeating=self.repeating("eval")))
        limits: dict[str, Any] = {"max_dollars": self.max_dollars, "max_total_tokens": self.max_total_tokens}
        folder = resumed(self, **limits, log=self.log)
        higher = {name: limit for name, limit in limits.items() if limit is not None}
        with user_input():
            plan = replace(settings_of(folder, "eval", Evaluation), **higher)
        return run_main(conduct(resolve(plan), folder, log=self.log))

    def plan(self) -> Evaluation:
        """The plan of the options. UserError for bad input."""
        grader = self.grader or ""
        if grader.startswith("judge=") and "@" not in grader and self.url:
            grader += f"@{self.url}"
        return self.plan_of(
            required(self.task, "task", "--task TASK") + (f"#{grader}" if grader else ""),
            self.organizations,
            self.models,
            n=self.n,
            split=self.split,
            samples=self.samples,
            concurrency=self.concurrency,
            prices=read_prices(self.prices),
            max_dollars=self.max_dollars,
            max_total_tokens=self.max_total_tokens,
        )


async def conduct(
    resolved: Resolved,
    target: RunFolder | Path,
    *,
    overwrite: bool = False,
    log: str | None = None,
    repeating: str | None = None,
    **settings: Any,
) -> int:
    """Make a new run at a path, or go on with one; print its table and return the exit code.

    `overwrite` deletes an earlier run at the path. `log` is the run's tracker from now on. `repeating` is the text of
    the new run's `run.toml`. `settings` of `open_engine` apply to the engines.
    """
    if isinstance(target, Path):
        require_vacant(target, overwrite=overwrite)
    else:
        episodes = list(target.episodes())
        require_planned(resolved.planned, target, episodes)
        if len(episodes) == len(resolved.planned) and not any(map(engine_failed, episodes)):
            return report(resolved, target, episodes)
    async with AsyncExitStack() as stack:
        with stoppable():
            resolved, engines, folder = await stack.enter_async_context(
                opened(resolved, target, overwrite=overwrite, **settings)
            )
            if repeating is not None:
                folder.write(REPEATS, repeating)
        choose_tracker(folder, log)
        each = [await engines.get(spec) for spec in resolved.plan.engines]
        note(*[engine.notice for engine in each])
        note(price_note([engine.model for engine in each], resolved.plan.prices))

        async def work(stop: threading.Event) -> list[Episode]:
            with written(folder), progress(len(resolved.planned)) as advance:
                return await evaluate(
                    resolved, engines, folder, stop=stop, progress=lambda one, done: advance(done, described(one))
                )

        found = await interruptible(work)
    return report(resolved, folder, list(folder.episodes()) if found is None else found)


def report(resolved: Resolved, folder: RunFolder, episodes: list[Episode]) -> int:
    """Print the table, and how to go on if something is missing; return the exit code.

    Writes summary.json if an interrupted run has not written it.
    """
    total = len(resolved.planned)
    if episodes:
        summary = resolved.summary(resolved.in_order(episodes))
        print_table(summary, conditions(folder))
        answered = any(episode.answer or engine_failed(episode) for episode in episodes)
        note(*return_notes(episodes), None if answered else f"no answer: {': '.join(unanswered(episodes[0]))}")
        with written(folder):
            folder.renew_json("summary.json", summary)
    failed = [episode for episode in episodes if engine_failed(episode)]
    failed.sort(key=lambda episode: episode.error_kind is not None)  # a bug is named first
    others = [episode for episode in episodes if failed_agents(episode) and not engine_failed(episode)]
    if others:
        why = failure_message(others[0])
        note(f"{len(others)} of {total} episodes went on without an agent whose engine failed ({why})")
    why = f"episodes failed ({failure_message(failed[0])})" if failed else ""
    code = exit_code(
        folder, len(episodes), total, "episodes", len(failed), why, spending(resolved.plan, folder, episodes).reached
    )
    note(None if code else f"stored in {folder.path}; look at it: orgthink view {folder.path}")
    return code or int(not any(episode.answer for episode in episodes))


def _problems_note(plan: Evaluation) -> str | None:
    """The number of problems, if a benchmark's convention or the size of the task decides it."""
    if plan.wanted is not None:
        return f"{plan.task} has {plan.n} different {plan.split} problems, not {plan.wanted}: all of them are used"
    convention = task_named(plan.task).convention
    expected = None if convention is None else convention.problems or convention.published
    if expected in (None, plan.n):
        return None
    return f"{plan.task}: {plan.n} problems are evaluated, and the published set has {expected}"
