"""Countdown for small language models, in sizes that need different organizations: `countdown-small`.

4, 5 or 6 numbers up to 30, a target from 10 to 100, and 1, 2 or 4 required solutions, each equally likely. A problem
has its solutions of three numbers in a scan: the lines of all pairs, which take 18 to 44 lines. Each line writes its
operations out, so that no number in it is a guess:

    15*2=30,35-30=5 hit 1: 15*2+5
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import ClassVar

from orgthink.record.episode import Problem
from orgthink.tasks.countdown import Countdown, CountdownSize
from orgthink.tasks.task import Split

GIVEN = (4, 5, 6)
"""Numbers of a problem."""
REQUIRED = (1, 2, 4)
"""Solutions of a problem."""
LARGEST_PRODUCT = 130
"""Largest product in a scan: the largest target and the largest number."""


def scan(numbers: Sequence[int], target: int, first: int) -> Iterator[tuple[str, str | None]]:
    """The lines of the pairs of `first` and a smaller number, each with the solution that it finds, or `None`.

    Of equivalent solutions, such as `3+20-5` and `20-5+3`, only one is found.
    """
    for other, operator, value in _pairs(numbers, first):
        gap = target - value
        found = abs(gap) in numbers and _is_new(first, other, operator, gap)
        solution = f"{first}{operator}{other}{gap:+}" if found else None
        yield f"{first}{operator}{other}={value},{target}-{value}={gap}", solution


def _pairs(numbers: Sequence[int], first: int) -> Iterator[tuple[int, str, int]]:
    """The smaller number, the operator and the value of each line. Nothing is multiplied or divided by 1."""
    for other in sorted(number for number in numbers if number < first):
        yield other, "+", first + other
        yield other, "-", first - other
        if other > 1 and first * other <= LARGEST_PRODUCT:
            yield other, "*", first * other
        if other > 1 and first % other == 0:
            yield other, "/", first // other


def _is_new(first: int, other: int, operator: str, gap: int) -> bool:
    """Whether the gap is a third number, and no other line finds an equivalent solution: a sum of three numbers ends
    with the largest one, and what adds and subtracts begins with its sum."""
    if abs(gap) in (first, other):
        return False
    if operator == "+":
        return gap < 0 or gap > first
    return operator != "-" or -gap > other


def counts(numbers: Sequence[int]) -> Counter[int]:
    """How many solutions the scan finds, by target."""
    lines = ((first, *pair) for first in numbers for pair in _pairs(numbers, first))
    gaps = [gap for number in numbers for gap in (number, -number)]
    return Counter(
        value + gap for first, other, operator, value in lines for gap in gaps if _is_new(first, other, operator, gap)
    )


class CountdownSmall(Countdown):
    """Countdown whose numbers and required solutions vary. Held-out targets occur only in `test` problems."""

    program: ClassVar[str] = "orgthink.training.coldstart.countdown:PROGRAM"
    """Writes traces for `orgthink synth --teacher program`."""

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        """New numbers for each problem, and one of their targets."""
        rng = random.Random(f"{self.name} {split} {seed}")
        low, high = self.size.targets
        own = [t for t in range(low, high + 1) if (t in self.test_targets) == (split == "test")]
        while True:
            given, required = rng.choice(GIVEN), rng.choice(REQUIRED)
            numbers, targets = list[int](), list[int]()
            while not targets:
                numbers = sorted(rng.sample(range(1, self.size.largest + 1), given))
                found = counts(numbers)
                targets = [t for t in own if found[t] >= required and t not in numbers]
            yield self.problem(numbers, rng.choice(targets), required)

    def _instruction(self, given: int, required: int) -> str:
        """Short, since small models are trained on it again and again."""
        one = "Find an expression" if required == 1 else f"Find {required} different expressions"
        rest = "" if required == 1 else " Different: other numbers, or other counts of the operators. One a line."
        return f"{one} over + - * / of at least 3 of the numbers, each used at most once, that make the target.{rest}"


COUNTDOWN_SMALL = CountdownSmall(
    "countdown-small", CountdownSize(largest=30, given=max(GIVEN), targets=(10, 100), held_out=20, offered=4)
)
"""1, 2 or 4 different expressions of 4, 5 or 6 numbers up to 30 that make a target."""
