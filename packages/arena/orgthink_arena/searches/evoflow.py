"""EvoFlow (Zhang et al., 2025; a static baseline of section 4.4 of ParaManager): a population of workflows evolves on
training problems, and is frozen.

    a training problem's tags → parents that fit them → crossover → mutation → evaluation → the worst of a niche leaves

Unlike in the paper no model writes the tags, crosses or mutates: tags are words and accuracies by tag
(`orgthink_arena/organizations/evoflow.py`), and the `mutator` changes graphs. An operator is a node of a graph, so that
mutations of operators are those of its kinds of nodes; temperatures belong to the members of the pool, not to a node.
A whole generation of children is made and evaluated at once, not one child a query.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from orgthink.evaluation.plan import distinct
from orgthink.record.episode import Problem
from orgthink.record.folder import Journal
from orgthink.util.errors import require_at_least
from orgthink.util.settings import adapter
from orgthink_arena.organizations.evoflow import Individual, Population, nearest, tags_of_problem
from orgthink_arena.searches.mutator import crossed, mutated
from orgthink_arena.searches.search import ArchiveEntry, Design, Report, Searching, SearchJob, SearchSettings, rng_of

POPULATION = "population.json"
"""File of the frozen population."""
CROSSED = 0.5
"""Share of children of two parents, and share of these that are mutated as well."""
DRAWN = 4
"""Individuals that fit a question best, of which its parents are drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvoFlowSettings(SearchSettings):
    """Settings of EvoFlow."""

    steps: int = 20
    """Generations."""
    size: int = 16
    """Individuals of the population."""
    children: int = 16
    """New individuals of a generation."""
    niche: int = 4
    """Individuals that do most like a child, of which, with the child, the worst leaves."""

    def __post_init__(self) -> None:
        SearchSettings.__post_init__(self)
        require_at_least(1, self, "size", "children", "niche")


@dataclass(frozen=True, slots=True)
class EvoFlowSearch(SearchJob):
    """EvoFlow: workflows evolve. The result is `population.json`, for the organization `evoflow`."""

    settings: EvoFlowSettings
    """Settings of the search."""

    async def search(self, searching: Searching, journal: Journal, report: Report) -> Path:
        settings, folder = self.settings, searching.folder
        problems = distinct(settings.task, "train", settings.seed, settings.problems)
        first = searching.of_generation(0) or await searching.evaluated(0, beginners(settings))
        population = first[: settings.size]
        logged = len(list(folder.metrics()))
        for step in range(1, settings.steps + 1):
            searching.proceed()
            children = searching.of_generation(step)
            if not children:
                children = await searching.evaluated(step, offspring(settings, population, problems, step))
            for child in children:
                population = selected(population, child, settings.niche)
            if step > logged:
                line = searching.line(step) | {"population": fmean(one.accuracy for one in population)}
                journal.log(**line)
                report(line)
        individuals = tuple(Individual(o.id, o.graph, o.accuracy, o.tokens, o.tags, o.solved) for o in population)
        frozen = Population(individuals, {name: tuple(sorted(tags)) for name, tags in tagged(problems).items()})
        folder.write_json(POPULATION, adapter(Population).dump_python(frozen, mode="json"))
        return folder.path / POPULATION


def beginners(settings: EvoFlowSettings) -> list[Design]:
    """The first population: the seeds, and mutants of them."""
    rng, seeds = rng_of(settings.seed, "beginners"), settings.graphs
    found = [Design(graph) for graph in seeds]
    while len(found) < settings.size:
        change = mutated(rng.choice(found).graph, seeds, settings.space, rng)
        found.append(Design(change.graph, (), f"mutator: {change.how}"))
    return found[: settings.size]


def offspring(
    settings: EvoFlowSettings, population: Sequence[ArchiveEntry], problems: Sequence[Problem], step: int
) -> list[Design]:
    """The children of a generation. The parents of each fit the tags of a training problem."""
    rng, tags = rng_of(settings.seed, "children", step), tagged(problems)
    drawn = [rng.choice(problems) for _ in range(settings.children)]
    return [_child(settings, population, problem.task, nearest(tags[problem.id], tags), rng) for problem in drawn]


def tagged(problems: Sequence[Problem]) -> dict[str, frozenset[str]]:
    """The tags of problems, by their ids."""
    return {problem.id: tags_of_problem(problem) for problem in problems}


def _child(
    settings: EvoFlowSettings, population: Sequence[ArchiveEntry], task: str, near: Sequence[str], rng: random.Random
) -> Design:
    """A child of an individual that fits problems of a task, mutated; or of that and any other, and perhaps mutated
    too."""
    space, donors = settings.space, [one.graph for one in population]
    fitting = sorted(population, key=lambda one: (-one.fit(near), one.tokens))[:DRAWN]
    father, mother = rng.choice(fitting), rng.choice(population)
    graph, parents, how = father.graph, (father.id,), list[str]()
    if rng.random() < CROSSED and mother.id != father.id:
        tasks = tuple(name for name in space.tasks if name == task)
        change = crossed(mother.graph, graph, replace(space, tasks=tasks), rng)
        graph, parents, how = change.graph, (mother.id, father.id), [change.how]
    if not how or rng.random() < CROSSED:
        change = mutated(graph, donors, space, rng)
        graph, how = change.graph, [*how, change.how]
    return Design(graph, parents, f"mutator: {', '.join(how)}")


def selected(population: Sequence[ArchiveEntry], child: ArchiveEntry, niche: int) -> list[ArchiveEntry]:
    """The population after a child came to it. Of the niche, those most like the child, and the child itself, the worst
    leaves: who is dominated in accuracy and tokens by most, then who is less accurate, then who takes more tokens."""
    near = sorted(population, key=lambda one: _distance(one, child))[:niche]
    members = [*near, child]
    worst = min(members, key=lambda one: (-sum(_dominates(o, one) for o in members), one.accuracy, -one.tokens))
    return [one for one in (*population, child) if one is not worst]


def _dominates(one: Individual, other: Individual) -> bool:
    """Whether one is better in accuracy or tokens, and not worse in the other."""
    no_worse = one.accuracy >= other.accuracy and one.tokens <= other.tokens
    return no_worse and (one.accuracy, one.tokens) != (other.accuracy, other.tokens)


def _distance(one: Individual, other: Individual) -> float:
    """How differently two do at the training problems."""
    problems = one.solved.keys() | other.solved.keys()
    gaps = [abs(one.solved.get(problem, 0.0) - other.solved.get(problem, 0.0)) for problem in problems]
    return fmean(gaps) if gaps else 0.0
