"""Countdown in the size of the pocket models: one problem or several in one.

Only the first n_s expressions are graded.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

from orgthink.record.episode import Grade, Problem
from orgthink.tasks.countdown import Countdown, CountdownSize, all_solutions
from orgthink.tasks.task import Solution, Split, Task

GUARANTEED = 3
"""A problem has its required solutions with at most this many numbers."""


@lru_cache(maxsize=4096)  # five numbers up to 15 have 3,003 sets in all
def _qualifying(size: CountdownSize, numbers: tuple[int, ...]) -> tuple[int, ...]:
    found: Counter[int] = Counter()
    low, high = size.targets
    for mask, values in all_solutions(list(numbers), GUARANTEED).items():
        if mask.bit_count() >= size.used[0]:
            for value, counts in values.items():
                found[value] += len(counts)
    return tuple(sorted(t for t, n in found.items() if low <= t <= high and n >= size.required and t not in numbers))


class CountdownStream(Countdown):
    """Countdown in which every problem has a new set of numbers. All solutions of a set are computed, and a target of
    it is taken."""

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


class CountdownMini(CountdownStream):
    """Countdown with a program that writes traces for `orgthink synth --teacher program`."""

    @property
    def program(self) -> Any:
        from orgthink_pocket.base.countdown import PROGRAM

        return PROGRAM


COUNTDOWN_MINI = CountdownMini(
    "countdown-mini", CountdownSize(largest=15, given=5, targets=(10, 60), held_out=10, offered=4)
)
"""Four different expressions of five numbers up to 15 that make a target."""
COUNTDOWN_MINI_SINGLE = CountdownStream(
    "countdown-mini-single",
    CountdownSize(largest=15, given=5, targets=(10, 60), held_out=10, required=1, offered=1),
    like="countdown-mini",
)
"""One expression of five numbers up to 15 that makes a target."""


class CountdownSeveral(Task):
    """`count` countdowns with different targets; the answer has a solution of each, in any order."""

    def __init__(self, name: str, single: Countdown, count: int) -> None:
        """`single` is the task of one part: it asks for one solution."""
        self.name, self.single, self.count = name, single, count

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        """Parts in the order of the single task's stream; parts with a repeated target are left out."""
        rng = random.Random(f"{self.name} {split} {seed}")
        parts = self.single.problems(split, rng.randrange(1 << 30))
        while True:
            selected: dict[int, Problem] = {}
            while len(selected) < self.count:
                part = next(parts)
                selected.setdefault(part.data["target"], part)
            yield self.problem(list(selected.values()))

    def problem(self, parts: list[Problem]) -> Problem:
        listed = "\n".join(f"{i}. {part.text}" for i, part in enumerate(parts, 1))
        return Problem(
            id=f"{self.name}/{'+'.join(part.id.rpartition('/')[2] for part in parts)}",
            task=self.name,
            text=f"Solve {len(parts)} problems. Write one expression per line in the answer.\n{listed}",
            required=len(parts),
            data={"parts": [part.data for part in parts]},
        )

    def fits(self, data: Mapping[str, Any]) -> bool:
        parts = data.get("parts")
        return isinstance(parts, list) and all(isinstance(part, dict) and self.single.fits(part) for part in parts)

    def grade(self, problem: Problem, answer: str) -> Grade:
        """Number of parts that the answer solves."""
        return Grade(correct=sum(self.solved(problem, answer)), required=problem.required)

    def solved(self, problem: Problem, answer: str) -> list[bool]:
        """Whether the first expressions solve each part. Only as many expressions as parts count."""
        offered = [solution.text for solution in islice(self.solutions(problem, answer), problem.required)]
        parts = [self.single.problem(part["numbers"], part["target"]) for part in problem.data["parts"]]
        return [any(self.single.grade(part, text).all_correct for text in offered) for part in parts]

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        """Two expressions are one solution if they have the same numbers and the same value."""
        return self.single.solutions(problem, answer)


COUNTDOWN_MINI_FOUR = CountdownSeveral("countdown-mini-four", COUNTDOWN_MINI_SINGLE, 4)
"""Four countdowns of one expression each."""
COUNTDOWN_MINI_TWO = CountdownSeveral("countdown-mini-two", COUNTDOWN_MINI_SINGLE, 2)
"""Two countdowns."""
