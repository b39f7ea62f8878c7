"""Countdown for small language models, in sizes that need different organizations.

`countdown-small`: 4, 5 or 6 numbers up to 30, a target from 10 to 100, and 1, 2 or 4 required solutions, each equally
likely. A problem has its solutions of three numbers in a scan: the lines of all pairs, which take 18 to 44 lines. Each
line writes its operations out, so that no number in it is a guess:

    15*2=30,35-30=5 hit 1: 15*2+5

`countdown-all`: 3 to 6 numbers, and all solutions of the scan are required. Their number is not told, so no scan may
end early, and dividing it shortens the critical path.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from orgthink.record.episode import Grade, Problem
from orgthink.tasks.countdown import MOST_PIECES, Countdown, CountdownSize, read_expression
from orgthink.tasks.expression import parse
from orgthink.tasks.task import Split
from orgthink.tasks.written import pieces

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


def solutions(numbers: Sequence[int], target: int) -> list[str]:
    """All solutions that the scan finds."""
    return [found for first in numbers for _, found in scan(numbers, target, first) if found is not None]


class CountdownSmall(Countdown):
    """Countdown whose numbers and required solutions vary. Held-out targets occur only in `test` problems."""

    program: ClassVar[str] = "orgthink.training.coldstart.countdown:PROGRAM"
    """Writes traces for `orgthink synth --teacher program`."""
    given: ClassVar[tuple[int, ...]] = GIVEN
    """How many numbers a problem may have, each equally likely."""

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        """New numbers for each problem, and one of their targets."""
        rng = random.Random(f"{self.name} {split} {seed}")
        low, high = self.size.targets
        own = [t for t in range(low, high + 1) if (t in self.test_targets) == (split == "test")]
        while True:
            given = rng.choice(self.given)
            required = rng.choice(self._required(given))
            numbers, targets = list[int](), list[int]()
            while not targets:
                numbers = sorted(rng.sample(range(1, self.size.largest + 1), given))
                found = counts(numbers)
                targets = [t for t in own if self._suits(found[t], required) and t not in numbers]
            yield self.problem(numbers, rng.choice(targets), required)

    def _required(self, given: int) -> Sequence[int]:
        """Solutions that a problem may require, each equally likely."""
        return REQUIRED

    def _suits(self, found: int, required: int) -> bool:
        """Whether a target has so many solutions as a problem needs."""
        return found >= required

    def _instruction(self, given: int, required: int) -> str:
        """Short, since small models are trained on it again and again."""
        one = "Find an expression" if required == 1 else f"Find {required} different expressions"
        rest = "" if required == 1 else " Different: other numbers, or other counts of the operators. One a line."
        return f"{one} over + - * / of at least 3 of the numbers, each used at most once, that make the target.{rest}"


class CountdownAll(CountdownSmall):
    """All solutions of three numbers, whose number is not told."""

    program = "orgthink.training.coldstart.countdown:PROGRAM_ALL"
    given = (3, *GIVEN)

    def _required(self, given: int) -> Sequence[int]:
        """Each number is likely, so that a scan which ends early misses some."""
        return range(1, given - 1)

    def _suits(self, found: int, required: int) -> bool:
        return found == required

    def problem(self, numbers: list[int], target: int, required: int | None = None) -> Problem:
        """`required` is always the number of solutions that the scan finds."""
        return super().problem(numbers, target, counts(numbers)[target])

    def _instruction(self, given: int, required: int) -> str:
        return (
            "Find every way to make the target of three of the numbers: combine two of them by + - * or /, then add or "
            "subtract the third. Do not multiply or divide by 1. Ways with the same numbers and operators count once. "
            "Write one expression a line."
        )

    def grade(self, problem: Problem, answer: str) -> Grade:
        """n_c: the solutions, less one for each other line with a digit in it. So guessing costs what it may gain, and
        only the whole set is all correct."""
        wanted = {parse(text).key for text in solutions(problem.data["numbers"], problem.data["target"])}
        lines = [read_expression(piece) for piece in pieces(answer)[:MOST_PIECES] if re.search(r"\d", piece)]
        right = [one[1].key for one in lines if one and one[1].key in wanted and self._solves(problem, one[1])]
        return Grade(max(0, len(set(right)) - len(lines) + len(right)), problem.required)


_SIZE = CountdownSize(largest=30, given=max(GIVEN), targets=(10, 100), held_out=20, offered=4)

COUNTDOWN_SMALL = CountdownSmall("countdown-small", _SIZE)
"""1, 2 or 4 different expressions of 4, 5 or 6 numbers up to 30 that make a target."""

COUNTDOWN_ALL = CountdownAll("countdown-all", replace(_SIZE, used=(3, 3)), like="countdown-small")
"""All expressions of three of 3 to 6 numbers that make a target: 1 to 4. The held-out targets are the same."""
