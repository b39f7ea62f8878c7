"""Arithmetic solutions with an error: the material of verifiers and correctors."""

from __future__ import annotations

import random
from dataclasses import dataclass

from orgthink_pocket.tasks.arithmetic import LARGEST
from orgthink_pocket.tasks.steps import Operation, apply, steps


@dataclass(frozen=True, slots=True)
class Worked:
    """A solution, right or wrong."""

    steps: tuple[Operation, ...]
    """One for each operator of the expression; fewer if the solution stops early."""
    answer: int
    """The final answer; only a slip makes it differ from the value of the last step."""


def worked(expression: str) -> Worked:
    """The right solution."""
    found = tuple(steps(expression.split()))
    return Worked(found, found[-1].value)


def slipped(expression: str, rng: random.Random) -> Worked:
    """A solution with a slip and a wrong answer: a wrong value, an error in copying a line, or another answer."""
    right = worked(expression)
    while True:
        at = rng.randrange(len(right.steps))
        (kind,) = rng.choices(("value", "copy", "answer"), (0.75, 0.15, 0.1))
        if kind == "answer":
            found = Worked(right.steps, _near(right.answer, rng))
        else:
            slip = (_wrong_value if kind == "value" else _wrong_copy)(right.steps[at], rng)
            found = None if slip is None else _continued(right, at, slip)
        if found is not None and found.answer != right.answer:
            return found


def hasty(expression: str, rng: random.Random) -> Worked:
    """A solution that stops early and answers with the value of its last step; it may be right by chance."""
    taken = worked(expression).steps
    taken = taken[: rng.randint(1, len(taken) - 1)]
    return Worked(taken, taken[-1].value)


def _continued(right: Worked, at: int, slip: Operation) -> Worked | None:
    """The solution with one slip, at a step; `None` if it leaves the models' integers."""
    try:
        tail = steps(slip.rest)
    except ValueError:
        return None
    if not all(0 <= step.value <= LARGEST for step in tail):
        return None
    found = (*right.steps[:at], slip, *tail)
    return Worked(found, found[-1].value)


def _wrong_value(step: Operation, rng: random.Random) -> Operation | None:
    """The step with a wrong value: the value of another operator, or a near one."""
    a, operator, b = step.terms
    others = [apply(a, other, b) for other in "+-*" if other != operator]
    value = rng.choice(others) if rng.random() < 0.2 else _near(step.value, rng)
    if not 0 <= value <= LARGEST or value == step.value:
        return None
    # The value must occur once in the line, otherwise it is not clear which occurrence is from this step.
    if step.rest.count(str(step.value)) != 1:
        return None
    return Operation(step.terms, value, tuple(str(value) if token == str(step.value) else token for token in step.rest))


def _wrong_copy(step: Operation, rng: random.Random) -> Operation | None:
    """The right value, with another number or operator in the line after it."""
    rest = list(step.rest)
    places = [i for i, token in enumerate(rest) if token not in "()"]
    if len(places) < 2:
        return None
    at = rng.choice(places)
    rest[at] = rng.choice([o for o in "+-*" if o != rest[at]]) if rest[at] in "+-*" else str(_near(int(rest[at]), rng))
    return Operation(step.terms, step.value, tuple(rest))


def _near(value: int, rng: random.Random) -> int:
    """Another integer, usually a near one."""
    while True:
        away = rng.choice((1, 1, 1, 2, 2, 3, 4, 5, 6, 8, 10, 10, 20, 30))
        other = value + rng.choice((-1, 1)) * away
        if 0 <= other <= LARGEST:
            return other
