"""The programs that teach `countdown-small` and `countdown-all`: an organizer scans pairs of numbers,
forks some of them, and answers.

What is forked is random, so that reinforcement learning finds which division suits which problem.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from orgthink.grammar.actions import Answer, Fork, Join, Return
from orgthink.grammar.asyncthink import DIALECT
from orgthink.record.episode import Origin, Problem, Span, Trace
from orgthink.tasks.countdown_small import scan
from orgthink.training.coldstart.lesson import words
from orgthink.training.coldstart.structures import Step, random_structure
from orgthink.training.coldstart.teachers import Program

SEGMENT = 376
"""Most tokens of a worker's text, or of the organizer's up to its next Join: the recipe's 384, less a few that an
estimate may miss."""
NOTHING = "none"
"""The result of a worker without a solution."""
OMITTED = 0.2
"""Share of the traces that leave a part out."""
TRIES = 100
"""Structures that are tried before another part is left out: with few agents, a whole scan may be too long."""

_TOKENS = re.compile(r"[0-9]|[^\W\d]+| |\n|[^\w\s]")


def tokens(text: str) -> int:
    """What tokenizers of digits make of the texts, about: a few tokens less, as many words begin with their space."""
    return len(_TOKENS.findall(text))


OPENINGS = (
    "Let me look at the pairs.",
    "I go through the pairs of numbers.",
    "Each pair may leave a third number.",
    "First the pairs, then what is missing.",
)
SHARED = (
    "The pairs can be divided.",
    "Some pairs are for others.",
    "Workers can take a part of the pairs.",
    "I share the work.",
)
QUERIES = (
    "Numbers {numbers}, target {target}. Scan the pairs that begin with {firsts}. Find {wanted}.",
    "Combine {firsts} with each smaller number of {numbers}. Which pairs leave a third number to {target}? "
    "{wanted} are enough.",
    "Make {target} of {numbers}: take {firsts} first. Stop after {wanted}.",
    "Target {target}, numbers {numbers}. Your part: {firsts} with smaller numbers. Solutions wanted: {wanted}.",
)


@dataclass(frozen=True, slots=True)
class ScanTeacher:
    """Writes traces of scans that are divided. Its fields are how they are phrased."""

    openings: Sequence[str] = OPENINGS
    shared: Sequence[str] = SHARED
    """Openings of organizers that fork."""
    queries: Sequence[str] = QUERIES
    comma: str = ", "
    conjunction: str = " and "
    """Between the first numbers of a query."""
    heading: str = "\n{first} with {smaller}:"
    """Before the lines of a first number: tells a small model where it stands."""
    hit: str = " hit {known}: {found}"
    """After a line with a solution."""
    known: str = "Now {known} of {required}."
    stands: str = " Left: {left}. Running: {running}."
    """Where an organizer stands: without this, a small model repeats parts, and joins what it never forked. `left` are
    the first numbers that are not scanned or forked, `running` the forks without a join."""
    early: bool = True
    """Whether a scan ends at the last required solution."""
    segment: float = SEGMENT
    omitted: float = OMITTED

    def write(self, problem: Problem, capacity: int, rng: random.Random) -> list[Trace]:
        """The traces of an organizer and its workers, whose segments have at most `segment` tokens.

        Some organizers leave a part out, so that a trace may end without all solutions: a model that has missed one
        must know how to end as well.
        """
        firsts = sorted(problem.data["numbers"])[1:]
        for tries in count():
            omitted = (rng.random() < self.omitted) + tries // TRIES
            taken = sorted(rng.sample(firsts, max(0, len(firsts) - omitted)))
            order = rng.sample(taken, len(taken)) if rng.random() < 0.5 else taken
            structure = random_structure(rng, [*map(str, order)], rng.randint(1, capacity), largest_fork=3)
            texts = self._texts(problem, structure, rng)
            segments = [part for text in texts for part in re.split(r"(?<=<JOIN-[0-9]>)", text)]
            if all(tokens(segment) <= self.segment for segment in segments):
                break
        return [_trace(i, text) for i, text in enumerate(texts)]

    def _texts(self, problem: Problem, structure: Sequence[Step], rng: random.Random) -> list[str]:
        """The organizer's whole context and the workers' texts, by a structure whose parts are first numbers."""
        forking = any(step.action == "fork" for step in structure)
        left = [part for step in structure if step.action != "join" for part in step.parts]
        opening = rng.choice(self.shared if forking else self.openings)
        organizer = _Scanner(self, problem, f"{opening} Parts: {self.comma.join(left)}.")
        workers: list[str] = []
        results: dict[str, str] = {}
        running: list[str] = []
        for step in structure:
            if organizer.done:
                break
            match step.action:
                case "think":
                    organizer.scan(int(step.parts[0]))
                    left.remove(step.parts[0])
                    organizer.text += "\n"
                    organizer.count(left, running)
                case "fork":
                    organizer.text += "\n" + DIALECT.render(Fork(step.key, self._query(problem, step.parts, rng)))
                    text, results[step.key] = self._worker(problem, step.parts)
                    workers.append(text)
                    running.append(step.key)
                    left = [part for part in left if part not in step.parts]
                case "join":
                    organizer.text += "\n" + DIALECT.render(Join(step.key))
                    organizer.text += DIALECT.injection(step.key, results[step.key])
                    organizer.learn(results[step.key])
                    running.remove(step.key)
                    organizer.text += " "
                    organizer.count(left, running)
        answer = "\n".join(organizer.known[: problem.required]) or NOTHING
        return [f"{organizer.text}\n{DIALECT.render(Answer(answer))}", *workers]

    def _query(self, problem: Problem, parts: Sequence[str], rng: random.Random) -> str:
        numbers = self.comma.join(map(str, problem.data["numbers"]))
        values = {"numbers": numbers, "target": problem.data["target"], "wanted": problem.required}
        return rng.choice(self.queries).format(firsts=self.conjunction.join(parts), **values)

    def _worker(self, problem: Problem, parts: Sequence[str]) -> tuple[str, str]:
        """The text of a worker and what it returns."""
        worker = _Scanner(self, problem, "")
        for part in parts:
            worker.scan(int(part))
        returned = "\n".join(worker.known) or NOTHING
        return f"{worker.text.lstrip()}\n{DIALECT.render(Return(returned))}", returned


class _Scanner:
    """The text of one agent, and the solutions that it knows."""

    def __init__(self, teacher: ScanTeacher, problem: Problem, text: str) -> None:
        self.teacher, self.problem, self.text = teacher, problem, text
        self.known: list[str] = []

    @property
    def done(self) -> bool:
        return self.teacher.early and len(self.known) >= self.problem.required

    def scan(self, first: int) -> None:
        """Write the lines of a first number, up to the last solution that is needed."""
        if self.done:
            return
        numbers = self.problem.data["numbers"]
        smaller = self.teacher.comma.join(str(number) for number in numbers if number < first)
        self.text += self.teacher.heading.format(first=first, smaller=smaller)
        for line, found in scan(numbers, self.problem.data["target"], first):
            self.text += f"\n{line}"
            if found is not None:
                self.known.append(found)
                self.text += self.teacher.hit.format(known=len(self.known), found=found)
            if self.done:
                return

    def learn(self, returned: str) -> None:
        """Add what a worker has returned."""
        self.known += [] if returned == NOTHING else returned.split("\n")

    def count(self, left: Sequence[str], running: Sequence[str]) -> None:
        """Write where an organizer stands."""
        required = self.problem.required
        self.text += self.teacher.known.format(known=min(len(self.known), required), required=required)
        if not self.done:
            parts, forks = (self.teacher.comma.join(each) or NOTHING for each in (left, running))
            self.text += self.teacher.stands.format(left=parts, running=forks)


def _trace(i: int, text: str) -> Trace:
    name, role, parent = (f"organizer/{i}", "worker", "organizer") if i else ("organizer", "organizer", None)
    return Trace(name, role, parent, (Span(Origin.SAMPLED, text, words(text)),))


PROGRAM = Program("paper", ScanTeacher().write)
"""Teaches `orgthink synth --task countdown-small --teacher program`."""

ALL = ScanTeacher(
    openings=("Pair by pair.", "All the pairs.", "I scan the pairs.", "One by one."),
    shared=("I share the pairs.", "Workers help.", "Not all by myself.", "I divide this."),
    queries=(
        "{target} of {numbers}: {firsts}",
        "Make {target} of {numbers}, begin with {firsts}",
        "Numbers {numbers}, target {target}, part {firsts}",
        "Pairs of {firsts} in {numbers} for {target}",
    ),
    comma=",",
    conjunction=",",
    heading="",
    hit=" hit {found}",
    known="",
    stands="left {left} runs {running}",
    early=False,
)
"""As short as a small model can bear, since what is not the scan cannot be divided."""

PROGRAM_ALL = Program("paper", ALL.write)
"""The same for `countdown-all`."""
