"""Small tasks for tests, drawn at once. They are named by the path of this file, as a task of yours could be."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from orgthink.record.episode import Grade, Problem
from orgthink.tasks.countdown import Countdown, CountdownSize, all_solutions
from orgthink.tasks.task import Solution, Split, Task

_SIZE = {"largest": 15, "given": 5, "targets": (10, 60), "held_out": 10}
GUARANTEED = 3
"""A problem has enough solutions that use at most this many numbers."""


@lru_cache(maxsize=4096)
def _qualifying(size: CountdownSize, numbers: tuple[int, ...]) -> tuple[int, ...]:
    found: Counter[int] = Counter()
    low, high = size.targets
    for mask, values in all_solutions(list(numbers), GUARANTEED).items():
        if mask.bit_count() >= size.used[0]:
            for value, counts in values.items():
                found[value] += len(counts)
    return tuple(sorted(t for t, n in found.items() if low <= t <= high and n >= size.required and t not in numbers))


class Stream(Countdown):
    """Every problem has a new set of numbers: all solutions of a set are computed, and a target of it is taken."""

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        """New sets, with one qualifying target each.

        Small targets qualify far more often. Test problems are balanced over their targets: a set is used only for the
        least frequent targets so far.
        """
        rng = random.Random(f"{self.name} {split} {seed}")
        taken = dict.fromkeys(sorted(self.test_targets), 0) if split == "test" else {}
        while True:
            numbers = sorted(rng.sample(range(1, self.size.largest + 1), self.size.given))
            targets = [t for t in self.qualifying(numbers) if (t in self.test_targets) == (split == "test")]
            if split == "test":
                targets = [t for t in targets if taken[t] == min(taken.values())]
            if targets:
                target = rng.choice(targets)
                taken[target] = taken.get(target, 0) + 1
                yield self.problem(numbers, target)

    def qualifying(self, numbers: list[int]) -> tuple[int, ...]:
        """Targets with enough solutions from these numbers, sorted; never one of the numbers."""
        return _qualifying(self.size, tuple(numbers))


SMALL = Stream("countdown-small", CountdownSize(**_SIZE))
ONE = Stream("countdown-small-one", CountdownSize(**_SIZE, required=1), like="countdown-small")


class Sums(Task):
    """What two numbers are together; even first numbers are held out for `test`."""

    name = "sums"

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        rng = random.Random(f"{self.name} {split} {seed}")
        while True:
            a, b = rng.randrange(split == "train", 400, 2), rng.randrange(400)
            yield self.problem(f"{a} + {b}", a + b)

    def problem(self, expression: str, value: int) -> Problem:
        data = {"expression": expression, "value": value}
        return Problem(f"{self.name}/{expression}", self.name, f"sum {expression}", data=data)

    def grade(self, problem: Problem, answer: str) -> Grade:
        """1 if the answer is the number and nothing else, else 0."""
        return Grade(correct=int(answer.strip() == str(problem.data["value"])), required=problem.required)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        text = answer.strip()
        return [Solution(text, text)] if text else []


class Three(Sums):
    """Has no more than three problems."""

    name = "three"

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        while True:
            yield from (self.problem(f"1 + {b}", 1 + b) for b in range(3))


SUMS, THREE = Sums(), Three()

TASK, TASK_OF_ONE, TASK_OF_SUMS, TASK_OF_THREE = (
    f"{Path(__file__).resolve()}:{name}" for name in ("SMALL", "ONE", "SUMS", "THREE")
)
