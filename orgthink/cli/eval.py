"""`orgthink eval`: problems × organizations → a run folder and a table."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from orgthink.cli.notes import (
    all_problems,
    by_convention,
    ignored_server,
    never_returned,
    note,
    pools,
    unlike_its_style,
)
from orgthink.cli.options import Options, pair
from orgthink.cli.prices import read_prices, unpriced
from orgthink.cli.progress import progress
from orgthink.cli.resuming import exit_code, interruptible, resumed, settings_of, stoppable, written
from orgthink.cli.table import conditions, print_table
from orgthink.cli.tracing import Around, Traced
from orgthink.engines import Engines, EngineSpec
from orgthink.evaluate.compatibility import require_places
from orgthink.evaluate.evaluation import Evaluation, OrganizationSpec, Resolved, evaluate, require_planned, resolve
from orgthink.evaluate.presets import Attempts, attempts
from orgthink.evaluate.spending import Bounds
from orgthink.record.episode import Episode
from orgthink.record.failures import engine_failed, failed_agents, failure_message
from orgthink.record.folder import RunFolder, dated, require_vacant
from orgthink.runtime.clock import run_main
from orgthink.tasks.task import Split
from orgthink.util.errors import UserError, required, user_input
from orgthink.util.terminal import show


@dataclass(frozen=True, kw_only=True)
class Eval(Traced, Options):
    """Let organizations solve problems; print a table with 95 % intervals.

    Everything goes to a run folder as it happens. After Ctrl-C, a crash or `kill -9`, `--resume DIR` goes on.
    """

    task: str | None = None
    """Which problems; `math:FILE` takes those of a file of rows with `problem` and `answer`: .jsonl, .json or
    .parquet; `verl:FILE` those of a parquet file of verl's; `bench:NAME` is a named benchmark."""
    organizations: tuple[str, ...] = ("sequential", "parallel", "asyncthink")
    """Who solves them: names, or label=name to have one of them twice, with settings of its own (--set)."""
    models: Annotated[tuple[str, ...], arg(metavar="LABEL=MODEL[@URL]")] = ()
    """Models of their own for some organizations, by label: to compare models in one table."""
    widths: tuple[int, ...] = ()
    """Capacities in place of --capacity, such as 2 4 8 16: each organization runs at each of them, as NAME-c2, NAME-c4
    and so on, on the same problems."""
    n: int | None = None
    """How many different problems, all if the task has fewer; without it 100, or by a benchmark's convention."""
    split: Split = "test"
    """`test` problems are held out from training."""
    samples: int | None = None
    """k: attempts of each organization at each problem; without it 1, or by a benchmark's
    convention."""
    concurrency: int = 64
    """Episodes alive at once."""
    prices: Path | None = None
    """TOML or JSON file with dollars for a million tokens of each model: `["NAME"]`, `input`, `output` and, if it is
    another price, `cached`. The table then has a column of dollars."""
    max_dollars: float | None = None
    """Dollars of all episodes together: none begins that would probably go beyond. --resume goes on with more."""
    max_total_tokens: int | None = None
    """Tokens that all episodes together may sample, in the same way."""
    out: Path | None = None
    """New run folder; without it one under runs/, named after the task and the time."""
    resume: Path | None = None
    """Run folder to go on with; it knows everything else, but for new prices and bounds."""

    def __call__(self) -> int:
        traced = self.traced()
        if self.resume is None:
            resolved = resolve(self.plan())
            note(
                by_convention(resolved.plan, self.n, self.samples, self.temperature),
                all_problems(resolved.plan),
                ignored_server(resolved.plan.engine, self.model),
                *chain.from_iterable(
                    pools([one], resolved.plan.limits_of(label).capacity)
                    for label, one in resolved.organizations.items()
                ),
            )
            return run_main(conduct(resolved, self.out or dated(resolved.plan.task), traced=traced))
        folder = resumed(self, prices=self.prices, **self._bounds(), **self.destination)
        resolved = resolve(self._rebounded(settings_of(folder, "eval", Evaluation)))
        return run_main(conduct(resolved, folder, traced=traced))

    @property
    def named_task(self) -> str:
        """The task; UserError if it was left out."""
        return required(self.task, "task", "--task TASK")

    def plan(self) -> Evaluation:
        """UserError for anything that cannot be."""
        found = attempts(self.named_task, self.split, self.seed, self.n, self.samples, self.temperature)
        return replace(self, **asdict(found))._plan(found)

    def _plan(self, attempts: Attempts) -> Evaluation:
        with user_input():
            organizations = self.widened(self.organize(self.organizations, self.own()))
            return Evaluation(
                task=self.named_task,
                organizations=organizations,
                n=attempts.n,
                engine=self.spec(),
                sampling=self.sampling(organizations),
                roles=self.backed(organizations),
                limits=self.limits(organizations),
                split=self.split,
                seed=self.seed,
                samples=attempts.samples,
                concurrency=self.concurrency,
                prices=read_prices(self.prices),
                bounds=Bounds(self.max_dollars, self.max_total_tokens),
            )

    def widened(self, organizations: dict[str, OrganizationSpec]) -> dict[str, OrganizationSpec]:
        """Each organization at each of the widths, one width after the other."""
        if self.widths and self.capacity is not None:
            raise UserError("--capacity is one width and --widths several: give one of the two")
        if len(set(self.widths)) < len(self.widths) or min(self.widths, default=1) < 1:
            raise UserError("--widths are capacities from 1 on, each once")
        for c in self.widths:
            require_places((how.named(label) for label, how in organizations.items()), c)
        wide = {f"{label}-c{c}": replace(how, capacity=c) for c in self.widths for label, how in organizations.items()}
        return wide or organizations

    def _bounds(self) -> dict[str, float | None]:
        """These options, by name."""
        return {"max_dollars": self.max_dollars, "max_total_tokens": self.max_total_tokens}

    def _rebounded(self, plan: Evaluation) -> Evaluation:
        """A plan with the prices and bounds of these options in place of its own."""
        prices, bounds = read_prices(self.prices) or plan.prices, plan.bounds
        dollars = bounds.dollars if self.max_dollars is None else self.max_dollars
        tokens = bounds.tokens if self.max_total_tokens is None else self.max_total_tokens
        with user_input():
            return replace(plan, prices=prices, bounds=Bounds(dollars, tokens))

    def own(self) -> dict[str, EngineSpec]:
        """Engines of their own, by the organization's label."""
        found: dict[str, EngineSpec] = {}
        for given in self.models:
            label, model = pair(given, "--models", "LABEL=MODEL")
            if label in found:
                raise UserError(f"--models names {label} twice: an organization has one model")
            found[label] = self.served(model)
        return found


async def conduct(
    resolved: Resolved,
    target: RunFolder | Path,
    *,
    overwrite: bool = False,
    traced: Around = lambda folder: nullcontext(),
) -> int:
    """Make a new run at a path, or go on with one; print its table and return the exit code.

    `overwrite` deletes an earlier run at the path. `traced` makes what surrounds it.
    """
    if isinstance(target, Path):
        require_vacant(target, overwrite=overwrite)
    else:
        episodes = list(target.episodes())
        require_planned(resolved.planned, target, episodes)
        if len(episodes) == len(resolved.planned) and not any(map(engine_failed, episodes)):
            return report(resolved, _remembering(target, resolved.plan), episodes)
    async with Engines() as engines:
        unnamed = resolved.plan.engine.model is None
        with stoppable():
            resolved = await resolved.opened(engines)
        if unnamed:
            note(unlike_its_style(resolved.plan.engine, resolved.organizations.values()))
        note(unpriced([(await engines.get(spec)).model for spec in resolved.specs], resolved.plan.prices))
        if isinstance(target, Path):
            folder = RunFolder.create(target, "eval", resolved.plan, overwrite=overwrite)
        else:
            folder = _remembering(target, resolved.plan)
        with traced(folder):
            ended = await interruptible(lambda stop: _evaluate(resolved, engines, folder, stop))
    return report(resolved, folder, list(folder.episodes()) if ended is None else ended)


def _remembering(folder: RunFolder, plan: Evaluation) -> RunFolder:
    """The folder with the prices and bounds of a plan, which are written to it if they are new."""
    stored = folder.settings("eval", Evaluation)
    wanted = replace(stored, prices=plan.prices, bounds=plan.bounds)
    with written(folder):
        return folder if wanted == stored else folder.changed(wanted)


async def _evaluate(resolved: Resolved, engines: Engines, folder: RunFolder, stop: asyncio.Event) -> list[Episode]:
    people = any([(await engines.get(spec)).person for spec in resolved.specs])
    with written(folder), progress(len(resolved.planned), live=not people) as ended:
        return await evaluate(resolved, engines, folder, stop=stop, progress=ended)


def report(resolved: Resolved, folder: RunFolder, episodes: list[Episode]) -> int:
    """Print the table, and how to go on if something is missing; return the exit code.

    summary.json is written where whoever ran the episodes was ended before.
    """
    total = len(resolved.planned)
    if episodes:
        summary = resolved.summary(resolved.in_order(episodes))
        print_table(summary, conditions(folder))
        note(*never_returned(episodes))
        with written(folder):
            folder.renew_json("summary.json", summary)
    failed = [episode for episode in episodes if engine_failed(episode)]
    failed.sort(key=lambda episode: episode.error_kind is not None)  # a bug is named first
    others = [episode for episode in episodes if failed_agents(episode) and not engine_failed(episode)]
    if others:
        failure = failure_message(others[0])
        why = f"{len(others)} of {total} episodes went on without an agent whose engine failed ({failure})"
        show(f"orgthink: {why}", error=True)
    why = f"episodes failed ({failure_message(failed[0])})" if failed else ""
    bound = resolved.spending(folder, episodes).reached
    return exit_code(folder, len(episodes), total, "episodes", len(failed), why, bound)
