"""Forms of an organizer's lesson: one structure, written with results that arrive at other moments.

The work on a part, the parts that are forked, and their order are those of the structure in all forms. Results arrive
never (`sequential`: one agent does all parts), all at the first Join (`barrier`), each at its Join (`single`), or as
soon as they are there, between any two tokens (`push`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from orgthink.grammar.actions import Answer, Fork, Join
from orgthink.grammar.asyncthink import DIALECT
from orgthink.record.episode import Origin, Problem, Trace
from orgthink.tasks.expression import parse
from orgthink.training.coldstart.structures import Step, random_structure
from orgthink_pocket.base.countdown import CountdownFamily, marked, pairs
from orgthink_pocket.base.family import Thinking, organizer, question, sequential, teacher_trace, worker

FORKS = 2
"""Forks of each trace of the form `two-forks`."""


class Structured(CountdownFamily):
    """Countdown with a given structure."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = list(steps)

    def alone(self, problem: Problem) -> list[str]:
        return [part for step in self.steps for part in step.parts]

    def structure(self, rng: random.Random, problem: Problem, capacity: int) -> list[Step]:
        return self.steps


def barrier(steps: Sequence[Step]) -> list[Step]:
    """The structure with all forks joined where the first of them is."""
    found, active = list[Step](), list[str]()
    for step in steps:
        if step.action != "join":
            active += [step.key] if step.action == "fork" else []
            found.append(step)
        elif step.key in active:
            found += [step, *(Step("join", key) for key in active if key != step.key)]
            active.clear()
    return found


@dataclass(slots=True)
class _Pushing:
    """An organizer to which results are pushed, written word by word: a word is a decoding step."""

    family: Structured
    work: Thinking
    spans: list[tuple[str, Origin]] = field(default_factory=list)
    workers: list[Trace] = field(default_factory=list)
    running: dict[str, tuple[int, Thinking]] = field(default_factory=dict)
    """Key → the step at which its worker has returned, and its work."""
    now: int = 0
    """Decoding steps until now, waits included."""
    note: str = ""
    """What it writes about results at the end of the line."""

    def write(self, text: str, *, whole: bool = False) -> None:
        """Write; between two words results arrive, but not within a tag."""
        for word in [text] if whole else text.split():
            self.deliver()
            self.spans.append((f" {word}", Origin.SAMPLED))
            self.now += len(word.split())

    def deliver(self) -> None:
        """Inject the results that are there."""
        for key in [key for key, (end, _) in self.running.items() if end <= self.now]:
            self.take(key, DIALECT.around_pushed(key, DIALECT.fork[0]))

    def take(self, key: str, around: tuple[str, str]) -> None:
        _, found = self.running.pop(key)
        self.spans.append((found.returned.join(around), Origin.INJECTED))
        self.note = self.family.joined(self.work, found.results)

    def settle(self) -> None:
        """Write the note, if there is one."""
        while self.note:
            text, self.note = self.note, ""
            self.write(text)

    def wait(self, key: str) -> None:
        """Join a worker, unless its result is there."""
        self.deliver()
        if key in self.running:
            self.write(DIALECT.render(Join(key)), whole=True)
            self.now = max(self.now, self.running[key][0])
            self.take(key, DIALECT.around(key, DIALECT.join))
        self.settle()

    def fork(self, step: Step) -> None:
        query = self.family.query(self.work, step.parts)
        done = worker(self.family, self.work.problem, query, step.parts, {})
        self.workers.append(done.trace)
        self.write(DIALECT.render(Fork(step.key, f" {query} ")), whole=True)
        self.running[step.key] = self.now + done.trace.steps, done.work

    def think(self, part: str) -> None:
        """Scan a part line by line, as long as solutions are missing."""
        data, work = self.work.problem.data, self.work
        self.write(f"scan {part}")
        for line in pairs(data["numbers"], data["target"], part):
            self.settle()
            if self.family.done(work):
                return
            keys = {parse(hit).key for _, hit in work.results}
            text, hits = marked(line, keys, len(work.results), work.problem.required)
            work.results += [(str(i), hit) for i, hit in enumerate(hits, len(work.results) + 1)]
            self.write(f"{text} ;")
        self.settle()


def pushed(family: Structured, problem: Problem, capacity: int) -> list[Trace]:
    """An organizer that waits only for a place, and when nothing else is left; and its workers."""
    do = _Pushing(family, Thinking(problem))
    for step in family.steps:
        if family.done(do.work):
            break
        if step.action == "think":
            do.think(*step.parts)
        elif step.action == "fork":
            do.wait(step.key)  # so that the key is free
            if not family.done(do.work):
                do.fork(step)
    while do.running and not family.done(do.work):
        do.wait(next(iter(do.running)))
    do.write(DIALECT.render(Answer(f" {family.finish(do.work)[1]} ")), whole=True)
    request = question("organizer", problem, capacity=capacity)
    return [teacher_trace("organizer", None, request, do.spans), *do.workers]


def traces(form: str, problem: Problem, capacity: int, rng: random.Random) -> list[Trace]:
    """The traces of a problem in a form. `two-forks` are single Joins, and skip structures with another number of
    forks."""
    parts = CountdownFamily().parts(problem)
    while True:
        steps = random_structure(rng, rng.sample(parts, len(parts)), capacity)
        family = Structured(barrier(steps) if form == "barrier" else steps)
        if form == "sequential":
            return [sequential(family, problem)]
        found = pushed(family, problem, capacity) if form == "push" else organizer(family, problem, capacity, rng)
        if form != "two-forks" or len(found) == 1 + FORKS:
            return found
