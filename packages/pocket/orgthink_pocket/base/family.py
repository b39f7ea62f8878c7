"""Families of problems that can be divided: what the lessons of thinkers, organizers and workers have in common.

A family says how the parts of a problem are worked on. The same work is done alone (`sequential`), by an organizer
between Forks and Joins, and by its workers. Structures are random: which parts are forked, in what order, how many at
once. An agent that is done stops, even if workers are still at work.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from orgthink.grammar.actions import Answer, Fork, Join, Return
from orgthink.grammar.asyncthink import DIALECT
from orgthink.organizations.prompts import prompt
from orgthink.record.episode import Origin, Problem, Span, Trace
from orgthink.training.coldstart.structures import Step, random_structure
from orgthink_pocket.style import REFERENCE

CAPACITIES = (2, 3, 4, 8)
"""Pool sizes of organizers' lessons."""


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
    """What it knows in addition to the problem: name and value."""

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

    def structure(self, rng: random.Random, problem: Problem, capacity: int) -> list[Step]:
        """A random structure over the parts in random order."""
        parts = self.parts(problem)
        return random_structure(rng, rng.sample(parts, len(parts)), capacity)


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


def organizer(family: Family, problem: Problem, capacity: int, rng: random.Random) -> list[Trace]:
    """An organizer that follows a random structure, and its workers."""
    work = Thinking(problem)
    forked: dict[str, _Worked] = {}
    workers: list[Trace] = []
    spans: list[tuple[str, Origin]] = []

    def write(text: str) -> None:
        if text:
            spans.append((f" {text}", Origin.SAMPLED))

    for step in family.structure(rng, problem, capacity):
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


def teacher_trace(role: str, parent: str | None, question: str, spans: list[tuple[str, Origin]]) -> Trace:
    """A teacher's trace: texts without token ids. Rows encode them span by span."""
    parts = [(question, Origin.PROMPT), *_merged(spans)]
    return Trace(role, role, parent, tuple(Span(origin, text, len(text.split())) for text, origin in parts))


def _merged(spans: list[tuple[str, Origin]]) -> list[tuple[str, Origin]]:
    """Join neighbouring texts of one origin."""
    merged: list[tuple[str, Origin]] = []
    for text, origin in spans:
        if merged and merged[-1][1] is origin:
            merged[-1] = (merged[-1][0] + text, origin)
        else:
            merged.append((text, origin))
    return merged
