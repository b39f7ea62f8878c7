"""Tasks made of tasks: mixtures `A+B`, parts `A@0/2`, and other graders `A#exact`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain

from orgthink.record.episode import Grade, Problem
from orgthink.tasks.task import HELD_OUT, Convention, Solution, Split, Task, share
from orgthink.util.errors import UserError

Grader = Callable[[Problem, str], Grade]
"""Grades the text of an answer to a problem. Exact and total: any text gets a grade without an exception."""

MAX_PARTS = 1000
"""Most parts of a task."""
_MISSES = 100
"""A part of n without any of 100·n problems is regarded as empty."""
_PART = re.compile(r"([0-9]{1,6})/([0-9]{1,6})")


class TaskMixture(Task):
    """Problems of its parts in turn, in equal shares. Each problem keeps its own task."""

    def __init__(self, *parts: Task) -> None:
        """ValueError if a task is named twice; tasks of one name with other files are different ones."""
        self._parts = parts
        self.name = "+".join(part.name for part in parts)
        """Names of its parts, joined by `+`."""
        self.parts = {part.name: part for part in parts}
        """Parts by name, in order. Those of one name grade alike, whatever their files are."""
        if len({(part.name, str(getattr(part, "_files", ""))) for part in parts}) < len(parts):
            raise ValueError(f"{self.name} names a task twice: each has the same share")
        self.convention = _common([part.convention for part in parts])
        self._graders = {
            name: task for tasks in (*(p.tasks for p in parts), self.parts) for name, task in tasks.items()
        }

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        """Alternates between the streams of the parts at this split and seed."""
        return chain.from_iterable(zip(*[part.problems(split, seed) for part in self._parts], strict=True))

    def grade(self, problem: Problem, answer: str) -> Grade:
        """Grade by the task of the problem; KeyError if that task is not in the mixture."""
        return self._graders[problem.task].grade(problem, answer)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        return self._graders[problem.task].solutions(problem, answer)


def _common(conventions: list[Convention | None]) -> Convention | None:
    """The convention of several tasks, if they agree on samples and temperature."""
    known = [one for one in conventions if one is not None]
    if len(known) < len(conventions) or len({(one.samples, one.temperature) for one in known}) > 1:
        return None
    return Convention(known[0].samples, known[0].temperature, "+".join(dict.fromkeys(one.template for one in known)))


class _Derived(Task):
    """A task that changes one thing of another."""

    def __init__(self, task: Task, name: str) -> None:
        self.task, self.name, self.convention = task, name, task.convention

    def grade(self, problem: Problem, answer: str) -> Grade:
        return self.task.grade(problem, answer)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        return self.task.solutions(problem, answer)


class Part(_Derived):
    """Part `i` of `n`, in the order of the whole task. Different parts share no problems.

    A hash of its id assigns a problem to a part. The `test` split is not divided.
    """

    def __init__(self, task: Task, i: int, n: int) -> None:
        """ValueError unless 0 ≤ i < n ≤ 1,000."""
        if not 0 <= i < n <= MAX_PARTS:
            raise ValueError(
                f"{task.name}@{i}/{n}: the parts of {n} are 0 to {n - 1}, and there are at most {MAX_PARTS}"
            )
        super().__init__(task, f"{task.name}@{i}/{n}")
        self.i, self.n = i, n

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        """The problems of the part; UserError if it is empty."""
        missed = 0
        for problem in self.task.problems(split, seed):
            missed = 0 if split == "test" or self.contains(problem) else missed + 1
            if missed == 0:
                yield problem
            elif missed == _MISSES * self.n:
                raise UserError(f"{self.name} has no problems: {self.task.name} has too few for {self.n} parts")

    def contains(self, problem: Problem) -> bool:
        """Whether a training problem belongs to the part."""
        salt = "" if self.n % HELD_OUT else "part of "  # the hash without it has taken what is held out already
        return share(f"{salt}{problem.id}", self.n) == self.i


def part_of(name: str) -> tuple[str, tuple[int, int] | None]:
    """Split `NAME@i/n` into the name and `(i, n)`, or `None` without a part. ValueError for other text after an `@`,
    unless it belongs to the name of a file."""
    whole, at, part = name.rpartition("@")
    found = _PART.fullmatch(part) if at else None
    if found is not None:
        return whole, (int(found[1]), int(found[2]))
    if at and ":" not in whole and "#" not in whole:
        raise ValueError(f"{name}: name a part of {whole} as {whole}@0/2 or {whole}@1/2")
    return name, None


class GradedBy(_Derived):
    """`TASK#GRADER`: the problems of a task with another grader."""

    def __init__(self, task: Task, grader: Grader | Task, name: str) -> None:
        super().__init__(task, f"{task.name}#{name}")
        self._grade, self._fits = (grader.grade, grader.fits) if isinstance(grader, Task) else (grader, None)

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        """Problems of the task. UserError, before the first request, if one lacks data that the grader needs."""
        for problem in self.task.problems(split, seed):
            if self._fits is not None and not self._fits(problem.data):
                raise UserError(f"{self.name}: {problem.id} lacks data that the grader needs")
            yield problem

    def grade(self, problem: Problem, answer: str) -> Grade:
        return self._grade(problem, answer)
