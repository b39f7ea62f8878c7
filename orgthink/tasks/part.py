"""A part of a task: `countdown-mini@0/2` and `countdown-mini@1/2` have one half of the training problems each."""

from __future__ import annotations

import re
from collections.abc import Iterator

from orgthink.record.episode import Grade, Problem
from orgthink.tasks.task import HELD_OUT, Convention, Solution, Split, Task, convention_of, share
from orgthink.util.errors import UserError

MAX_PARTS = 1000
"""Most parts of a task."""
_MISSES = 100
"""A part of n without any of 100·n problems is regarded as empty."""
_PART = re.compile(r"([0-9]{1,6})/([0-9]{1,6})")


class Part:
    """Part `i` of `n`, in the order of the whole task. Different parts share no problems.

    A hash of its id assigns a problem to a part. The `test` split is not divided.
    """

    def __init__(self, task: Task, i: int, n: int) -> None:
        """ValueError unless 0 ≤ i < n ≤ 1,000."""
        if not 0 <= i < n <= MAX_PARTS:
            raise ValueError(
                f"{task.name}@{i}/{n}: the parts of {n} are 0 to {n - 1}, and there are at most {MAX_PARTS}"
            )
        self.name = f"{task.name}@{i}/{n}"
        """Name of the whole task, with `@i/n`."""
        self.task, self.i, self.n = task, i, n

    @property
    def convention(self) -> Convention | None:
        return convention_of(self.task)

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        """The problems of the part; UserError if there are none."""
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

    def grade(self, problem: Problem, answer: str) -> Grade:
        return self.task.grade(problem, answer)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        return self.task.solutions(problem, answer)


def part_of(name: str) -> tuple[str, tuple[int, int] | None]:
    """Split `NAME@i/n` into the name and `(i, n)`, or `None` without a part. ValueError for other text after an `@`,
    unless it belongs to the name of a file."""
    whole, at, part = name.rpartition("@")
    found = _PART.fullmatch(part) if at else None
    if found is not None:
        return whole, (int(found[1]), int(found[2]))
    if at and ":" not in whole:
        raise ValueError(f"{name}: a part of {whole} is {whole}@0/2 or {whole}@1/2, say")
    return name, None
