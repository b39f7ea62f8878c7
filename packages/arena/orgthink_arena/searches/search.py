"""What searches over workflows share: evaluations on training problems, the archive, and what they spend.

    DIR/archive.json         every workflow that was evaluated, with its fitness, in order
    DIR/evaluations/N/       the run folder of generation N's evaluation
    DIR/evaluations/N-again/ where most of it failed: an older workflow, which shows whether the engines still answer
    DIR/costs.json           what all of it took

A generation is written when it is complete. A resumed search continues with the first incomplete one and runs only the
missing episodes of its evaluation.
"""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

from orgthink.engines import Engines, EngineSpec
from orgthink.evaluation.compatibility import require_sampling_noise
from orgthink.evaluation.plan import Evaluation, resolve
from orgthink.evaluation.run import evaluate, open_plan
from orgthink.evaluation.specs import OrganizationSpec, RoleSpec
from orgthink.measure.accuracy import all_correct
from orgthink.measure.estimate import proportion
from orgthink.measure.usage import sampled_tokens
from orgthink.record.episode import Episode, Sampling
from orgthink.record.folder import Journal, RunFolder
from orgthink.record.guard import engine_failed, failure_message
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_main
from orgthink.training.interrupt import interrupt
from orgthink.util.errors import UserError, require_at_least
from orgthink.util.settings import adapter, typed
from orgthink.util.tabular import json_object
from orgthink_arena.organizations.evoflow import Individual, tags_of_problem, task_tag
from orgthink_arena.organizations.workflow import AnyGraph, Workflow
from orgthink_arena.organizations.workflow_graph import Graph
from orgthink_arena.organizations.workflow_json import read_graph, written_graph
from orgthink_arena.searches import costs
from orgthink_arena.searches.mutator import Space

ARCHIVE = "archive.json"
"""File of a search's archive."""
EVALUATIONS = "evaluations"
"""Folder of the run folders of evaluations."""
AGAIN = "-again"
"""Ends the name of the folder in which an older workflow shows whether the engines still answer."""
OFTEN = 1.0
"""Seconds between two writings of the costs. A resumed search counts the stored episodes, so no cost is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """What a search evaluates workflows on, and with."""

    steps: int
    """Generations."""
    task: str
    """Task whose training problems they are evaluated on, such as `TASK@0/2`."""
    workflow: dict[str, Any] = field(default_factory=dict)
    """Settings of the organization `workflow`, without a graph: prompt style, pool, tools."""
    seeds: tuple[AnyGraph, ...] = ()
    """Workflows that the search begins with: graphs, or the files that hold them."""
    engine: EngineSpec = field(default_factory=EngineSpec)
    """Model of agents without a member of the pool."""
    sampling: Sampling = field(default_factory=lambda: Sampling(512))
    """Sampling of these."""
    models: dict[str, RoleSpec] = field(default_factory=dict)
    """Engine and sampling of each member of the pool."""
    limits: Limits = field(default_factory=lambda: Limits(capacity=8))
    """Budgets of an episode."""
    problems: int = 32
    """Training problems."""
    samples: int = 1
    """Attempts at each."""
    concurrency: int = 64
    """Episodes that run at once; it affects only the running time."""
    seed: int = 0
    """Of problems, sampling and changes."""

    report_every: ClassVar[int] = 1
    """Generations between two lines of progress if the output is not a terminal."""

    def __post_init__(self) -> None:
        require_at_least(1, self, "steps", "problems", "samples", "concurrency")

    def require(self) -> None:
        """UserError for a seed that is no graph, or that the organization could not run."""
        if not self.seeds:
            raise UserError("a search needs a workflow to begin with: name seeds, such as seeds='[\"FILE.json\"]'")
        for graph in self.graphs:
            self.fits(graph)
        resolve(self.plan({"seed": self.graphs[0]}))

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The seeds."""
        return tuple(map(read_graph, self.seeds))

    @property
    def space(self) -> Space:
        """What mutations draw from."""
        tasks = tuple(name for name in self.task.partition("@")[0].partition("#")[0].split("+"))
        return Space(tuple(self.workflow.get("pool", ())), tasks if len(tasks) > 1 else (), self.fits)

    @property
    def organization(self) -> Workflow:
        """The organization, as it runs the first seed."""
        found = self._organization(self.graphs[0]).named("workflow")
        assert isinstance(found, Workflow)
        return found

    def fits(self, graph: Graph) -> None:
        """UserError for a graph that the organization could not run, or whose agents would all say the same."""
        made = self._organization(graph).named("workflow")
        require_sampling_noise(made, self.sampling, self.limits.capacity, self.models)

    def _organization(self, graph: Graph) -> OrganizationSpec:
        return OrganizationSpec("workflow", {**self.workflow, "graph": written_graph(graph)})

    def plan(self, graphs: Mapping[str, Graph]) -> Evaluation:
        """The evaluation of workflows, by their ids."""
        return Evaluation(
            task=self.task,
            organizations={name: self._organization(graph) for name, graph in graphs.items()},
            n=self.problems,
            engine=self.engine,
            sampling=replace(self.sampling, seed=self.seed),
            roles={
                name: replace(one, sampling=replace(one.sampling, seed=self.seed)) for name, one in self.models.items()
            },
            limits=self.limits,
            split="train",
            seed=self.seed,
            samples=self.samples,
            concurrency=self.concurrency,
        )

    def progress_text(self, line: Mapping[str, Any]) -> str:
        """The most important numbers of a generation, as one line for the user."""
        best = f"best {100 * line['best']:.0f} % of {line['problems']}, {line['best_tokens']:.0f} tokens"
        return f"{best}  {line['workflows']} workflows  {line['search_tokens']:,} tokens  {line['seconds']:.0f} s"


@dataclass(frozen=True, slots=True)
class ArchiveEntry(Individual):
    """A workflow of an archive: an individual, where it comes from, and how sure its fitness is."""

    generation: int = 0
    """Generation that made it; 0 for those that a search begins with."""
    parents: tuple[str, ...] = ()
    """Ids of those that it was made of."""
    change: str = "seed"
    """What made it of them."""
    low: float | None = None
    """Lower end of the 95 % interval of its accuracy over problems; `None` where the data do not tell."""
    high: float | None = None
    """Upper end of the same."""


@dataclass(frozen=True, slots=True)
class Design:
    """A workflow before it is evaluated."""

    graph: Graph
    """The workflow."""
    parents: tuple[str, ...] = ()
    """Ids of those that it was made of."""
    change: str = "seed"
    """What made it of them."""


def entry(name: str, generation: int, draft: Design, episodes: Sequence[Episode]) -> ArchiveEntry:
    """A workflow with its fitness. An episode that an engine failed says nothing."""
    known = proportion((episode.problem.id, all_correct(episode)) for episode in episodes)
    of_tag, of_problem = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    for episode in episodes:
        if (right := all_correct(episode)) is not None:
            of_problem[episode.problem.id].append(float(right))
            for tag in tags_of_problem(episode.problem):
                of_tag[tag].append(float(right))
    return ArchiveEntry(
        name,
        draft.graph,
        known.mean or 0.0,
        fmean([sampled_tokens(episode) for episode in episodes]),
        {tag: fmean(found) for tag, found in sorted(of_tag.items())},
        {problem: fmean(found) for problem, found in sorted(of_problem.items())},
        generation,
        draft.parents,
        draft.change,
        known.low,
        known.high,
    )


def _mostly_failed(episodes: Sequence[Episode]) -> bool:
    """Whether engines, or bugs, ended more than half of them."""
    return 2 * sum(map(engine_failed, episodes)) > len(episodes)


def _failure(episodes: Sequence[Episode]) -> UserError:
    failed = [episode for episode in episodes if engine_failed(episode)]
    return UserError(f"{len(failed)} of {len(episodes)} episodes failed ({failure_message(failed[0])})")


class Searching:
    """A search under way in its run folder."""

    def __init__(
        self, settings: SearchSettings, folder: RunFolder, engines: Engines, interrupted: threading.Event
    ) -> None:
        """Once `interrupted` is set, no further generation, design or episode begins."""
        self.settings, self.folder, self.engines, self.interrupted = settings, folder, engines, interrupted
        self.archive: list[ArchiveEntry] = _read_archive(folder)
        self.costs = costs.of(_stored(folder), costs.read(folder.path).seconds)
        self._since = time.perf_counter()
        self._written = 0.0

    def charge(self, *episodes: Episode) -> None:
        """Episodes have ended: what they used counts, and is written now and then."""
        now = time.perf_counter()
        self.costs = self.costs.plus(costs.of(episodes, now - self._since))
        self._since = now
        if not episodes or now - self._written > OFTEN:
            self._written = now
            costs.write(self.folder.path, self.costs)

    def proceed(self) -> None:
        """KeyboardInterrupt after Ctrl-C."""
        if self.interrupted.is_set():
            raise KeyboardInterrupt

    def of_generation(self, generation: int) -> list[ArchiveEntry]:
        """The workflows of a generation that is complete; none if it is not."""
        return [one for one in self.archive if one.generation == generation]

    async def evaluated(self, generation: int, drafts: Sequence[Design]) -> list[ArchiveEntry]:
        """Evaluate the workflows of a generation and put them into the archive. KeyboardInterrupt where Ctrl-C stopped
        that; UserError if the engines failed.

        A workflow of which most episodes fail, where older ones still run, is at fault itself: its accuracy is 0.
        """
        if not drafts:
            return []
        names = {f"g{generation}-{i}": draft for i, draft in enumerate(drafts, 1)}
        graphs = {name: draft.graph for name, draft in names.items()}
        episodes = await self._episodes(str(generation), self.settings.plan(graphs))
        if _mostly_failed(episodes) and not await self._older_run(generation):
            raise _failure(episodes)
        of_one = defaultdict[str, list[Episode]](list)
        for episode in episodes:
            of_one[episode.organization].append(episode)
        for name, own in of_one.items():
            if _mostly_failed(own):
                of_one[name] = [episode for episode in own if engine_failed(episode)]
        found = [entry(name, generation, d, of_one[name]) for name, d in names.items()]
        self.archive += found
        self.folder.write_json(
            ARCHIVE, {"entries": [adapter(ArchiveEntry).dump_python(one, mode="json") for one in self.archive]}
        )
        return found

    async def _episodes(self, name: str, plan: Evaluation) -> list[Episode]:
        """All episodes of an evaluation, in the folder of this name; those that are there are not run again."""
        resolved = resolve(plan)
        resolved = replace(resolved, plan=await open_plan(resolved.plan, self.engines))
        path = self.folder.path / EVALUATIONS / name
        if (path / "config.json").is_file():
            run = RunFolder.open(path)
            if run.settings("eval", Evaluation).organizations.keys() != plan.organizations.keys():
                raise UserError(
                    f"{path} holds an evaluation of other workflows: the search has changed; begin a new one"
                )
        else:
            run = RunFolder.create(path, "eval", plan)
        episodes = await evaluate(
            resolved, self.engines, run, stop=self.interrupted, progress=lambda episode, done: self.charge(episode)
        )
        self.charge()
        if len(episodes) < len(resolved.planned):
            raise KeyboardInterrupt
        return episodes

    async def _older_run(self, generation: int) -> bool:
        """Whether the fittest workflow before this generation still comes to something, at one problem."""
        if not self.archive:
            return False
        older = fittest(self.archive)
        plan = replace(self.settings.plan({older.id: older.graph}), n=1, samples=1)
        return not _mostly_failed(await self._episodes(f"{generation}{AGAIN}", plan))

    def line(self, step: int) -> dict[str, Any]:
        """The numbers of a generation."""
        best = fittest(self.archive)
        return {
            "step": step,
            "best": best.accuracy,
            "best_low": best.low,
            "best_high": best.high,
            "best_tokens": best.tokens,
            "problems": self.settings.problems,
            "workflows": len(self.archive),
            "search_tokens": self.costs.sampled_tokens,
            "seconds": round(self.costs.seconds, 3),
        }


def fittest(entries: Iterable[ArchiveEntry]) -> ArchiveEntry:
    """The most accurate; of several the one with fewer tokens, and then the first."""
    return max(entries, key=lambda one: (one.accuracy, -one.tokens))


TOURNAMENT = 3
"""Entries of which the fittest becomes a parent."""


def tournament(entries: Sequence[ArchiveEntry], rng: random.Random) -> ArchiveEntry:
    """The fittest of a few entries."""
    return fittest(rng.sample(entries, min(TOURNAMENT, len(entries))))


def best_at(entries: Sequence[ArchiveEntry], task: str) -> ArchiveEntry:
    """The entry that is best at a task."""
    return max(entries, key=lambda one: (one.tags.get(task_tag(task), 0.0), -one.tokens))


def weak_task(one: ArchiveEntry, tasks: Sequence[str], rng: random.Random) -> str:
    """A task, the likelier the worse the workflow is at it."""
    weights = [1.05 - one.tags.get(task_tag(task), one.accuracy) for task in tasks]
    return rng.choices(tasks, weights)[0]


def rng_of(seed: int, *place: object) -> random.Random:
    """A generator for one place of a search, so that a resumed one draws the same."""
    return random.Random("/".join(map(str, (seed, *place))))


def _read_archive(folder: RunFolder) -> list[ArchiveEntry]:
    """The archive of a folder, empty before there is one. UserError for one that cannot be read, or is gone."""
    file = folder.path / ARCHIVE
    found = typed(_Archive, json_object(file), file).entries if file.is_file() else ()
    if not found and any(folder.metrics()):
        raise UserError(f"{file} has no entry, and generations are complete: bring it back, or begin a new search")
    return list(found)


@dataclass(frozen=True, slots=True)
class _Archive:
    entries: tuple[ArchiveEntry, ...]


def _stored(folder: RunFolder) -> Iterator[Episode]:
    """All episodes of a search, those that failed included."""
    yield from folder.episodes()
    for path in sorted((folder.path / EVALUATIONS).glob("*/config.json")):  # without one nothing has begun there
        run = RunFolder.open(path.parent)
        yield from run.episodes()
        yield from run.failed()


Report = Callable[[dict[str, Any]], None]
"""Called with the metrics of each generation."""


@dataclass(frozen=True, slots=True)
class SearchJob(ABC):
    """What all searches do alike. A subclass has settings of its own, and says how it searches."""

    settings: SearchSettings
    """Settings of the search."""
    device: ClassVar[str] = "auto"
    """Its engines choose their own."""

    def require(self) -> None:
        """UserError if something that the search needs is missing."""
        self.settings.require()

    def run(self, folder: RunFolder, report: Report) -> Path:
        """Search from the first generation that is not complete. Returns the file of the result."""
        with folder.journal() as journal, interrupt(lambda: "the episodes under way") as interrupted:

            async def opened() -> Path:
                async with Engines() as engines:
                    return await self.search(Searching(self.settings, folder, engines, interrupted), journal, report)

            return run_main(opened())

    @abstractmethod
    async def search(self, searching: Searching, journal: Journal, report: Report) -> Path:
        """Search, write the result, and return its file."""
