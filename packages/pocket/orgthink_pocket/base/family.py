"""Families of problems that can be divided: what the lessons of thinkers, organizers and workers have in common.

A family says how the parts of a problem are worked on. The same work is done alone (`sequential`), by an organizer
between Forks and Joins, and by its workers. Structures are random: which parts are forked, in what order, how many at
once. Whoever is done stops, also if workers are still at work.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from orgthink.grammar.actions import Answer, Fork, Join, Return
from orgthink.grammar.asyncthink import DIALECT
from orgthink.organizations.prompts import prompt
from orgthink.record.episode import Origin, Problem, Trace
from orgthink.training.coldstart.structures import INDEPENDENT, Step, random_structure
from orgthink_pocket.base.style import REFERENCE
from orgthink_pocket.lessons.asyncthink import teacher_trace

CAPACITIES = (2, 3, 4, 8)
"""Pool sizes of organizers' lessons."""


class Structures(Protocol):
    """Draws a structure over parts, for a pool size: no part comes before the one that it needs."""

    def __call__(
        self, rng: random.Random, parts: Sequence[str], capacity: int, *, needs: Mapping[str, str]
    ) -> list[Step]: ...


NOTHING = "none"
"""A result or an answer without content."""


@dataclass(slots=True)
class Thinking:
    """What one agent knows of a problem, and has written."""

    problem: Problem
    """The problem."""
    text: list[str] = field(default_factory=list)
    """What it wrote about its parts, in order."""
    results: list[tuple[str, str]] = field(default_factory=list)
    """Found or joined: name and value."""
    given: Mapping[str, str] = field(default_factory=dict)
    """What it was told beside the problem: name and value."""

    @property
    def returned(self) -> str:
        """Its results as a worker returns them."""
        return " ".join(f"! {name} {value} ;" for name, value in self.results) or NOTHING


class _Worked(NamedTuple):
    """A worker's lesson."""

    trace: Trace
    work: Thinking


class Family(ABC):
    """One kind of problem."""

    stays: str = ""
    """Written between the thinking and the answer, if the thinking is no part of the solution."""

    @abstractmethod
    def parts(self, problem: Problem) -> list[str]:
        """Names of the parts."""

    def alone(self, problem: Problem) -> list[str]:
        """The parts that a thinker alone takes one by one before its last thoughts."""
        return self.parts(problem)

    def begin(self, problem: Problem) -> str:
        """What an organizer writes before it divides the parts."""
        return ""

    @abstractmethod
    def query(self, work: Thinking, parts: Sequence[str]) -> str:
        """The sub-query about these parts."""

    @abstractmethod
    def think(self, work: Thinking, part: str) -> str:
        """The text about a part; its results are added to the work."""

    @abstractmethod
    def finish(self, work: Thinking) -> tuple[str, str]:
        """The last thoughts, and the answer."""

    def done(self, work: Thinking) -> bool:
        """Whether no other part is needed."""
        return False

    def joined(self, work: Thinking, results: Sequence[tuple[str, str]]) -> str:
        """What an organizer writes after a Join; the results are added to its work."""
        work.results.extend(results)
        return ""

    def structure(
        self, rng: random.Random, problem: Problem, capacity: int, draw: Structures = random_structure
    ) -> list[Step]:
        """A structure over the parts in random order."""
        parts = self.parts(problem)
        return draw(rng, rng.sample(parts, len(parts)), capacity, needs=self.needs(problem))

    def needs(self, problem: Problem) -> Mapping[str, str]:
        """Part → the part that it needs, for those that need one."""
        return INDEPENDENT


def question(role: str, problem: Problem, **values: object) -> str:
    """The prompt of a role."""
    return prompt(REFERENCE, role, problem, **values)[0].content


def solved(family: Family, problem: Problem) -> str:
    """The text of a thinker alone."""
    work = Thinking(problem)
    for part in family.alone(problem):
        if family.done(work):
            break
        work.text.append(family.think(work, part))
    last, answer = family.finish(work)
    return " ".join(filter(None, [*work.text, last, family.stays, DIALECT.render(Answer(f" {answer} "))]))


def sequential(family: Family, problem: Problem) -> Trace:
    """A thinker alone."""
    spans = [(f" {solved(family, problem)}", Origin.SAMPLED)]
    return teacher_trace("thinker", None, question("sequential", problem), spans)


def worker(family: Family, problem: Problem, query: str, parts: Sequence[str], given: Mapping[str, str]) -> _Worked:
    """A worker at its parts. `given` are the organizer's results, of which the sub-query tells what is needed."""
    work = Thinking(problem, given=given)
    for part in parts:
        if family.done(work):
            break
        work.text.append(family.think(work, part))
    text = f" {' '.join([*work.text, DIALECT.render(Return(f' {work.returned} '))])}"
    request = question("worker", problem, query=query)
    return _Worked(teacher_trace("worker", "organizer", request, [(text, Origin.SAMPLED)]), work)


def organizer(
    family: Family, problem: Problem, capacity: int, rng: random.Random, draw: Structures = random_structure
) -> list[Trace]:
    """An organizer that follows a drawn structure, and its workers."""
    work = Thinking(problem)
    forked: dict[str, _Worked] = {}
    workers: list[Trace] = []
    spans: list[tuple[str, Origin]] = []

    def write(text: str) -> None:
        if text:
            spans.append((f" {text}", Origin.SAMPLED))

    write(family.begin(problem))
    for step in family.structure(rng, problem, capacity, draw):
        match step.action:
            case "think":
                for part in step.parts:
                    write(family.think(work, part))
            case "fork":
                query = family.query(work, step.parts)
                forked[step.key] = worker(family, problem, query, step.parts, dict(work.results))
                workers.append(forked[step.key].trace)
                write(DIALECT.render(Fork(step.key, f" {query} ")))
            case "join":
                found = forked[step.key].work
                write(DIALECT.render(Join(step.key)))
                spans.append((DIALECT.injection(step.key, found.returned), Origin.INJECTED))
                write(family.joined(work, found.results))
        if family.done(work):
            break
    last, answer = family.finish(work)
    write(last)
    write(DIALECT.render(Answer(f" {answer} ")))
    request = question("organizer", problem, capacity=capacity)
    return [teacher_trace("organizer", None, request, spans), *workers]
