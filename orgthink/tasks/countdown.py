"""Multi-solution countdown (section 4.2 of AsyncThink): find n_s different expressions that make a target.

Two solutions differ when they use different numbers or an operator a different number of times.

`countdown` has the paper's data: 100 held-out targets with 4 sets of numbers each, and 22,500 training problems, 25
for each of the other 900 targets. A set is drawn, and checked, when it is first asked for.

Ours, where the paper is silent: a set has six numbers and never contains its target.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

from orgthink.record.episode import Grade, Problem
from orgthink.tasks.expression import Expression, ExpressionError, parse
from orgthink.tasks.task import Solution, Split, Task
from orgthink.tasks.written import pieces, readings

OPERATORS = "+-*/"
_ONE = {operator: 1 << (8 * i) for i, operator in enumerate(OPERATORS)}
"""An operator count is an int of four bytes, so that counts add with `+`."""

Table = dict[int, dict[int, set[int]]]
"""Subset of the numbers (bit mask) → value → operator counts that reach it."""


def all_solutions(numbers: list[int], max_size: int) -> Table:
    """All values reachable from each subset of up to `max_size` numbers with positive integers on the way.

    Multiplication and division by 1 are excluded: they would count one solution as two.
    """
    table: Table = {1 << i: {number: {0}} for i, number in enumerate(numbers)}
    for mask in sorted(range(1, 1 << len(numbers)), key=int.bit_count):
        if not 2 <= mask.bit_count() <= max_size:
            continue
        values: dict[int, set[int]] = defaultdict(set)
        left = (mask - 1) & mask
        while left > mask ^ left:  # each split once
            _combine(table[left], table[mask ^ left], values)
            left = (left - 1) & mask
        table[mask] = dict(values)
    return table


def has_solutions(numbers: list[int], target: int, wanted: int) -> bool:
    """Whether at least so many different solutions of three to six numbers are found, such as `all_solutions` lists.

    It looks for solutions whose two outermost parts have at most three numbers each: a target that only other
    solutions reach is not recognized.
    """
    found: set[tuple[int, int]] = set()
    table = all_solutions(numbers, 3)
    for one, other in combinations(table, 2):
        if one & other or (one | other).bit_count() < 3:
            continue
        values = table[other]
        for a, counts in table[one].items():
            for b, operator in _partners(a, target):
                if b in values:
                    found.update((one | other, x + y + _ONE[operator]) for x in counts for y in values[b])
        if len(found) >= wanted:
            return True
    return False


def _partners(a: int, target: int) -> Iterator[tuple[int, str]]:
    """Values and operators that make the target with `a`."""
    if target > a:
        yield target - a, "+"
    if a > target:
        yield a - target, "-"
    yield a + target, "-"
    if a > 1:
        if target % a == 0 and target > a:
            yield target // a, "*"
        yield target * a, "/"
    if a % target == 0 and a > target:
        yield a // target, "/"


def _combine(lefts: dict[int, set[int]], rights: dict[int, set[int]], values: dict[int, set[int]]) -> None:
    for a, counts_a in lefts.items():
        for b, counts_b in rights.items():
            high, low = (a, b) if a >= b else (b, a)
            results = [(high + low, "+")]
            if high > low:
                results.append((high - low, "-"))
            if low > 1:
                results.append((high * low, "*"))
                if high % low == 0:
                    results.append((high // low, "/"))
            counts = {x + y for x in counts_a for y in counts_b}
            for value, operator in results:
                values[value].update(count + _ONE[operator] for count in counts)


MOST_PIECES = 2_000
"""Lines of an answer, and what commas separate in them, that are read: what follows them counts neither way."""


@dataclass(frozen=True, slots=True)
class CountdownSize:
    """The size of the problems."""

    largest: int
    """Numbers are distinct and in 1..largest."""
    given: int
    """Numbers in a problem."""
    targets: tuple[int, int]
    """Smallest and largest target."""
    held_out: int
    """Targets that occur only in `test` problems."""
    required: int = 4
    """n_s: number of different solutions required."""
    used: tuple[int, int] = (3, 6)
    """Fewest and most numbers in a solution."""
    sets: tuple[int, int] = (25, 4)
    """Sets of numbers of each training target and of each test target."""
    offered: int = 16
    """Most expressions of an answer that are graded, right or wrong, against guessing: what follows them counts neither
    way."""


class Countdown(Task):
    """Countdown of a size."""

    def __init__(self, name: str, size: CountdownSize, like: str | None = None) -> None:
        """`like` names a task with the same held-out targets, so that neither leaks into the other."""
        self.name, self.size, self._targets_of = name, size, like or name
        self._sets: dict[int, tuple[list[list[int]], random.Random]] = {}
        """Of each target: the sets so far, and the generator of the next."""

    @cached_property
    def test_targets(self) -> frozenset[int]:
        low, high = self.size.targets
        return frozenset(random.Random(f"{self._targets_of} targets").sample(range(low, high + 1), self.size.held_out))

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        """The first set of each target in random order, then the second set of each, and all of them again."""
        rng = random.Random(f"{self.name} {split} {seed}")
        low, high = self.size.targets
        targets = [t for t in range(low, high + 1) if (t in self.test_targets) == (split == "test")]
        while True:
            for i in range(self.size.sets[split == "test"]):
                for target in rng.sample(targets, len(targets)):
                    yield self.problem(self._numbers(target, i), target)

    def _numbers(self, target: int, i: int) -> list[int]:
        """The set of numbers i of a target; the sets of a target are different."""
        known, rng = self._sets.setdefault(target, ([], random.Random(f"{self._targets_of} {target}")))
        while len(known) <= i:
            numbers = sorted(rng.sample(range(1, self.size.largest + 1), self.size.given))
            if target not in numbers and numbers not in known and has_solutions(numbers, target, self.size.required):
                known.append(numbers)
        return known[i]

    def problem(self, numbers: list[int], target: int, required: int | None = None) -> Problem:
        """`required` is n_s, where it is not the task's."""
        wanted = required or self.size.required
        instruction = self._instruction(len(numbers), wanted)
        return Problem(
            id=f"{self.name}/{'-'.join(map(str, numbers))}={target}" + (f"x{required}" if required else ""),
            task=self.name,
            text=f"Numbers: {', '.join(map(str, numbers))}. Target: {target}.\n{instruction}",
            instruction=instruction,
            required=wanted,
            data={"numbers": numbers, "target": target},
        )

    def _instruction(self, given: int, required: int) -> str:
        few, many = self.size.used
        using = f"using {few} to {min(many, given)} of the numbers, each number at most once."
        if required == 1:
            return f"Find one expression over + - * / and parentheses that equals the target, {using}"
        return (
            f"Find exactly {required} different solutions: expressions over + - * / and parentheses that "
            f"equal the target, each {using} Two solutions are different if they use different numbers or use an "
            "operator a different number of times. Write one expression per line in the answer."
        )

    def fits(self, data: Mapping[str, Any]) -> bool:
        numbers = data.get("numbers")
        return isinstance(numbers, list) and all(type(number) is int for number in (*numbers, data.get("target")))

    def grade(self, problem: Problem, answer: str) -> Grade:
        """n_c: unique correct solutions among the first `offered` expressions. A wrong or repeated expression takes one
        of these places and costs nothing else; a line that cannot be read, or a false equation, takes none."""
        offered = self._expressions(answer)[: self.size.offered]
        found = {expression.key for _, expression in offered if self._solves(problem, expression)}
        return Grade(correct=len(found), required=problem.required)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        """Two solutions are equal if they use the same numbers and operators and have the same value. Where nothing can
        be read, the lines as they are written."""
        read = [Solution((expression.key, expression.value), text) for text, expression in self._expressions(answer)]
        return read or [Solution(piece, piece) for piece in pieces(answer)]

    def _expressions(self, answer: str) -> list[tuple[str, Expression]]:
        """The expressions in an answer, and how they are written."""
        return [one for one in (read_expression(piece) for piece in pieces(answer)[:MOST_PIECES]) if one is not None]

    def _solves(self, problem: Problem, expression: Expression) -> bool:
        few, many = self.size.used
        unused = Counter(problem.data["numbers"])
        unused.subtract(expression.numbers)
        fits = few <= len(expression.numbers) <= many and min(unused.values()) >= 0
        return fits and expression.value == problem.data["target"]


def read_expression(piece: str) -> tuple[str, Expression] | None:
    """The first reading of a line that is an expression, or an equation whose sides are equal."""
    for text in readings(piece):
        try:
            sides = [parse(side) for side in text.split("=")]
        except ExpressionError:
            continue
        expression = next((side for side in sides if sum(side.operators)), None)
        if expression is not None and all(side.value == expression.value for side in sides):
            return text, expression
    return None


def strict(problem: Problem, answer: str) -> Grade:
    """`countdown#strict`: only the first n_s expressions count, because the task asks for exactly so many."""
    return Countdown("countdown", replace(COUNTDOWN.size, offered=problem.required)).grade(problem, answer)


COUNTDOWN = Countdown("countdown", CountdownSize(largest=100, given=6, targets=(1, 1000), held_out=100))
"""Countdown of the AsyncThink paper: four different expressions of six numbers up to 100 that make a target."""
