"""`orgthink export`: problems, rows and traces for other programs, and spans for an OpenTelemetry collector."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import OmitArgPrefixes, Positional, arg, subcommand

from orgthink.evaluation.plan import up_to
from orgthink.export.orchestration import trace_of
from orgthink.measure.accuracy import mixed
from orgthink.record.folder import RunFolder, require_output
from orgthink.tasks.task import Split
from orgthink.util.errors import Failure, UserError, user_input
from orgthink.util.files import write_whole
from orgthink.util.install import needing
from orgthink.util.registry import registered_only
from orgthink.util.terminal import show


@dataclass(frozen=True)
class ExportProblems:
    """Write problems of a task as a parquet file with verl's columns. `--task verl:FILE` reads them back."""

    task: Annotated[Positional[str], arg(metavar="TASK")]
    """Task, such as `countdown` or `math:FILE`."""
    out: Path
    """File to write, such as train.parquet."""
    n: int = 1000
    """Number of different problems."""
    split: Split = "train"
    """`test` problems are held out from training."""
    seed: int = 0
    """Seed for problem generation."""
    mixed: Annotated[Path | None, arg(help_behavior_hint="")] = None
    """Run folder of `orgthink eval` with several samples of each problem. Only problems are written that some samples
    solved and others did not, as in ParaManager (section 4.2)."""

    def __call__(self) -> int:
        from orgthink.tasks.verl_data import write

        require_output(self.out)
        if self.n < 1:
            raise UserError(f"--n {self.n}: it must be at least 1")
        problems = up_to(self.task, self.split, self.seed, self.n)
        every = f" (all of them, not {self.n})" if len(problems) < self.n else ""
        if self.mixed is not None:
            wanted = set(mixed(RunFolder.open(self.mixed).episodes()))
            problems = tuple(problem for problem in problems if problem.id in wanted)
            if not problems:
                raise UserError(f"--mixed {self.mixed}: no problem of {self.task} has mixed outcomes there")
        write(problems, self.split, self.out)
        show(f"{len(problems)} problems are in {self.out}{every}")
        return 0


@dataclass(frozen=True)
class ExportRows:
    """Write the rows that a recipe makes of an evaluation's episodes, for another trainer (docs/rows.md).

    One JSON object a line for each row.
    """

    run: Annotated[Positional[Path], arg(metavar="DIR")]
    """Run folder of `orgthink eval` with one organization and several samples of each problem."""
    recipe: str
    """Recipe whose reward, credit and loss decide the rows, such as `asyncthink-qwen3-math`."""
    out: Path
    """File to write, such as rows.jsonl."""
    set: Annotated[tuple[str, ...], arg(metavar="SETTING=VALUE", help_behavior_hint="")] = ()
    """Settings of the recipe, as `orgthink train` takes them."""
    trust: Annotated[bool, arg(help_behavior_hint="")] = False
    """Run the code that the run folder names as `file.py:Name` or `package.module:Name`, and the programs in its
    answers, to grade them again."""

    def __call__(self) -> int:
        with needing("local"):
            from orgthink.training.episodes import recorded_rows
            from orgthink.training.recipes import registry as recipes
            from orgthink.training.recipes.jobs import Policy
        require_output(self.out)
        with user_input():
            job = recipes.adjusted(recipes.recipe_named(self.recipe), {}, self.set)
        if not isinstance(job, Policy):
            raise UserError(f"{self.recipe} makes no rows of whole episodes: name a recipe of reinforcement learning")
        with nullcontext() if self.trust else registered_only():  # the recipe is the user's, the folder may not be
            rows = recorded_rows(RunFolder.open(self.run), job.settings)
        write_whole(self.out, "".join(json.dumps(asdict(row)) + "\n" for row in rows).encode())
        show(f"{len(rows)} rows of {len({row.group for row in rows})} problems are in {self.out}")
        return 0


@dataclass(frozen=True)
class ExportOtlp:
    """Send the episodes of a run as spans to an OpenTelemetry collector.

    The same episode always has the same ids. Put a key into OTEL_EXPORTER_OTLP_HEADERS.
    """

    run: Annotated[Positional[Path], arg(metavar="DIR")]
    """Run folder."""
    endpoint: Annotated[str, arg(metavar="URL")] = "http://localhost:4318"
    """Base URL of the collector."""
    content: Annotated[bool, arg(help_behavior_hint="")] = False
    """Send prompts, replies and results too."""

    def __call__(self) -> int:
        with needing("otel"):
            from orgthink.export.otlp import Collector, with_beginnings
        collector, folder, count = Collector(self.endpoint, content=self.content), RunFolder.open(self.run), 0
        for count, (episode, began) in enumerate(with_beginnings(folder), 1):
            why = collector.send(collector.spans(episode, folder.name, began))
            if why is not None:
                raise Failure(f"{count - 1} episodes are at {collector.name}, the next did not arrive: {why}")
        show(f"{count} episodes are at {collector.name}")
        return 0


@dataclass(frozen=True)
class ExportTraces:
    """Write the episodes of a run as orchestration traces (arXiv 2605.02801), one JSON object a line, without texts."""

    run: Annotated[Positional[Path], arg(metavar="DIR")]
    """Run folder."""
    out: Path
    """File to write, such as traces.jsonl."""

    def __call__(self) -> int:
        require_output(self.out)
        traces = [trace_of(episode) for episode in RunFolder.open(self.run).episodes()]
        write_whole(self.out, "".join(json.dumps(trace) + "\n" for trace in traces).encode())
        show(f"{len(traces)} traces are in {self.out}")
        return 0


@dataclass(frozen=True)
class Export:
    """Write problems, rows or traces for other programs, or send episodes to an OpenTelemetry collector."""

    what: OmitArgPrefixes[
        Annotated[ExportProblems, subcommand("problems")]
        | Annotated[ExportRows, subcommand("rows")]
        | Annotated[ExportOtlp, subcommand("otlp")]
        | Annotated[ExportTraces, subcommand("traces")]
    ]
    """Kind of export."""

    def __call__(self) -> int:
        return self.what()
