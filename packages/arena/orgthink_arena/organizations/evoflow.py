"""EvoFlow (Zhang et al., 2025; a static baseline of section 4.4 of ParaManager): a population of workflows, one of
which a question picks by its tags.

The recipe `evoflow` evolves the population. The paper's tags are written by a model; here they are the name
of the task and the words of the question, and what a workflow is good for is what it solved of the training problems
whose tags are most like those of the question.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from orgthink.organizations import most
from orgthink.record.episode import Problem
from orgthink.runtime.session import Session
from orgthink.util.errors import UserError, require_above_zero
from orgthink.util.settings import adapter, typed
from orgthink.util.tabular import json_object
from orgthink_arena.organizations.workflow import ALONE, AnyGraph, GraphSettings, samples_in

MOST_WORDS = 200
"""Words of a question that are tags."""
NEIGHBOURS = 8
"""Training problems that a question is compared with."""
_WORD = re.compile(r"[^\W\d_]{3,}")


@dataclass(frozen=True, slots=True)
class Individual:
    """A workflow of a population, and what is known of it."""

    id: str
    """Its name in the search."""
    graph: AnyGraph
    """The workflow."""
    accuracy: float = 0.0
    """Share of the training problems that it answered all correctly."""
    tokens: float = 0.0
    """Sampled tokens of an episode, on average."""
    tags: dict[str, float] = field(default_factory=dict)
    """Tag → accuracy on training problems with it."""
    solved: dict[str, float] = field(default_factory=dict)
    """Training problem → share of attempts that were all correct."""

    def fit(self, problems: Sequence[str]) -> float:
        """How good it was at these training problems; its accuracy, if nothing of them is known."""
        known = [self.solved[problem] for problem in problems if problem in self.solved]
        return sum(known) / len(known) if known else self.accuracy


@dataclass(frozen=True, slots=True)
class Population:
    """Workflows that complement each other."""

    individuals: tuple[Individual, ...]
    """In any order."""
    problems: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Training problem → its tags."""

    def best_for(self, problem: Problem) -> Individual:
        """The individual that fits best; the cheaper one, and then the first, if several do."""
        near = nearest(tags_of_problem(problem), self.problems)
        return max(self.individuals, key=lambda one: (round(one.fit(near), 9), -one.tokens))


def nearest(tags: frozenset[str], problems: Mapping[str, Collection[str]]) -> list[str]:
    """The training problems whose tags are most like these: shared ones, as a share of all that either has."""

    def likeness(problem: str) -> float:
        other = set(problems[problem])
        return len(tags & other) / max(1, len(tags | other))

    return sorted(problems, key=likeness, reverse=True)[:NEIGHBOURS]


def tags_of_problem(problem: Problem) -> frozenset[str]:
    """The tags of a question: the name of its task and its words."""
    words = dict.fromkeys(_WORD.findall(problem.query.lower()))
    return frozenset([task_tag(problem.task), *list(words)[:MOST_WORDS]])


def task_tag(task: str) -> str:
    """The tag of a task, which is no word of a question."""
    return f"task {task}"


def read_population(data: Any) -> Population:
    """The population of JSON values, or of a JSON file. UserError, one line, for invalid values."""
    if isinstance(data, str | Path):
        try:
            data = json_object(Path(data))
        except OSError as error:
            raise UserError(f"population {data} cannot be read: {error.strerror}") from error
    found = data if isinstance(data, Population) else typed(Population, data, "population")
    if not found.individuals:
        raise UserError("population: it has no individual")
    return found


def _population_field() -> Any:
    from pydantic import PlainSerializer, PlainValidator

    return Annotated[
        Any,
        PlainValidator(read_population),
        PlainSerializer(lambda value: adapter(Population).dump_python(value, mode="json")),
    ]


if TYPE_CHECKING:
    AnyPopulation = Population
else:
    AnyPopulation = _population_field()

ALONE_POPULATION = Population((Individual("alone", ALONE),))
"""The population where none is given."""


@dataclass(frozen=True)
class EvoFlow(GraphSettings):
    """A population of workflows: each question is worked on by the one whose tags fit it best."""

    population: AnyPopulation = field(default_factory=lambda: ALONE_POPULATION)
    """The individuals, or the `population.json` of a search."""
    name: str = "evoflow"

    def __post_init__(self) -> None:
        require_above_zero(self, "call_seconds")
        for one in self.population.individuals:
            self.require(one.graph)

    @property
    def roles(self) -> tuple[str, ...]:
        return self.roles_in(one.graph for one in self.population.individuals)

    def identical_agents(self, capacity: int) -> Mapping[str, int]:
        """Samples of the agents, by whose model they have."""
        return most(samples_in(one.graph) for one in self.population.individuals)

    async def run(self, problem: Problem, session: Session) -> str | None:
        return await self.run_graph(self.population.best_for(problem).graph, problem, session)
