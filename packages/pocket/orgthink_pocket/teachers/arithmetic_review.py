"""Lessons of verifiers and correctors of `arithmetic-mini`: solutions with slips, reports on them, corrections.

A verifier solves the problem again and writes the value of the solution after each of its own values:

    3 + 4 = 7 7 ok ; 7 * 5 - 6 ; 7 * 5 = 35 36 bad </think> finding 7 * 5 = 35 correctness : wrong

Chance decides how many steps it checks, and whether a corrector uses the report. The lessons teach the form;
reinforcement learning teaches the judgement.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from orgthink.grammar.actions import Answer
from orgthink.grammar.asyncthink import DIALECT
from orgthink.grammar.solution import THOUGHT
from orgthink_pocket.tasks.arithmetic import LARGEST
from orgthink_pocket.teachers.arithmetic import Operation, apply, steps, written


@dataclass(frozen=True, slots=True)
class Worked:
    """A solution, right or wrong."""

    steps: tuple[Operation, ...]
    """One for each operator of the expression; fewer if the solution stops early."""
    answer: int
    """The final answer; only a slip makes it differ from the value of the last step."""

    @property
    def text(self) -> str:
        """The text of a solver."""
        return f"{written(self.steps)} {DIALECT.render(Answer(f' {self.answer} '))}"


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


def report(expression: str, solution: Worked, depth: int | None = None) -> str:
    """A verifier's thinking and report. It checks the first `depth` operations, or all of them and the answer.

    A missing step counts as a wrong one.
    """
    right = worked(expression)
    lines: list[str] = []
    for i, step in enumerate(right.steps[:depth]):
        claimed = solution.steps[i] if i < len(solution.steps) else None
        value = str(claimed.value) if claimed is not None and claimed.terms == step.terms else "none"
        if value != str(step.value):
            return reported([*lines, f"{_equation(step)} {value} bad"], _equation(step))
        lines.append(f"{_equation(step)} {value} ok")
        if len(step.rest) > 1:
            lines.append(" ".join(step.rest))
    if depth is None:
        if solution.answer != right.answer:
            return reported([*lines, f"{right.answer} {solution.answer} bad"], str(right.answer))
        lines.append(f"{right.answer} {solution.answer} ok")
    return reported(lines)


def false_report(expression: str, rng: random.Random) -> str:
    """A report that calls a right operation of a right solution wrong."""
    wrong, _ = _misjudged(expression, rng)
    before = takewhile(lambda step: step.terms != wrong.terms, worked(expression).steps)
    lines = [line for step in before for line in (f"{_equation(step)} {step.value} ok", " ".join(step.rest))]
    return reported([*lines, f"{_equation(wrong)} {apply(*wrong.terms)} bad"], _equation(wrong))


def false_finding(expression: str, rng: random.Random) -> tuple[str, Worked]:
    """A false finding about a right solution, and the solution that follows it."""
    wrong, believed = _misjudged(expression, rng)
    return f"finding {_equation(wrong)}", believed


def _misjudged(expression: str, rng: random.Random) -> tuple[Operation, Worked]:
    """A step with a wrong value, and the solution that continues from it; its answer may still be right."""
    right = worked(expression)
    while True:
        at = rng.randrange(len(right.steps))
        wrong = _wrong_value(right.steps[at], rng)
        found = None if wrong is None else _continued(right, at, wrong)
        if wrong is not None and found is not None:
            return wrong, found


def _equation(step: Operation) -> str:
    return f"{' '.join(step.terms)} = {step.value}"


def reported(lines: Sequence[str], finding: str | None = None) -> str:
    """A verifier's text: lines of thinking and a report; without a finding the verdict is correct."""
    verdict = "correct" if finding is None else "wrong"
    return f"{' ; '.join(lines)} {THOUGHT} finding {finding or 'none'} correctness : {verdict}".strip()
