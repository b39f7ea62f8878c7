"""A part of a task: `countdown-mini@0/2` has one half of its problems for training, `countdown-mini@1/2` the other."""

from __future__ import annotations

import re
from collections.abc import Iterator

from orgthink.episode import Grade, Problem
from orgthink.errors import UserError
from orgthink.tasks.task import Solution, Split, Task, share

MOST = 1000
"""Most parts of a task."""
_MISSES = 100
"""A part of n in which none of 100·n problems lies has none, for all that chance can do."""
_PART = re.compile(r"([0-9]{1,6})/([0-9]{1,6})")


class Part:
    """Part `i` of `n`, in the order of the whole: what is learned in one part has not been seen in another.

    Problems are dealt out by a hash of their ids. The `test` split is held out as it is, and left whole.
    """

    def __init__(self, task: Task, i: int, n: int) -> None:
        """ValueError unless 0 ≤ i < n ≤ 1,000."""
        if not 0 <= i < n <= MOST:
            raise ValueError(f"{task.name}@{i}/{n}: the parts of {n} are 0 to {n - 1}, and there are at most {MOST}")
        self.name = f"{task.name}@{i}/{n}"
        """Of the whole, with `@i/n`."""
        self.task, self.i, self.n = task, i, n

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        """Those of the whole that lie in the part; UserError if none do."""
        missed = 0
        for problem in self.task.problems(split, seed):
            missed = 0 if split == "test" or self.holds(problem) else missed + 1
            if missed == 0:
                yield problem
            elif missed == _MISSES * self.n:
                raise UserError(f"{self.name} has no problems: {self.task.name} has too few for {self.n} parts")

    def holds(self, problem: Problem) -> bool:
        """Whether a problem for training lies in the part."""
        return share(problem.id, self.n) == self.i

    def grade(self, problem: Problem, answer: str) -> Grade:
        return self.task.grade(problem, answer)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        return self.task.solutions(problem, answer)


def part_of(name: str) -> tuple[str, tuple[int, int] | None]:
    """The name of the whole, and `(i, n)` if a name ends in `@i/n`. ValueError for anything else behind an `@`, which
    only the file of a task may have in its name."""
    whole, at, part = name.rpartition("@")
    found = _PART.fullmatch(part) if at else None
    if found is not None:
        return whole, (int(found[1]), int(found[2]))
    if at and ":" not in whole:
        raise ValueError(f"{name}: a part of {whole} is {whole}@0/2 or {whole}@1/2, say")
    return name, None
