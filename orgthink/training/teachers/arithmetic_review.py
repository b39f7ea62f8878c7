"""What verifiers and correctors of `arithmetic-mini` imitate: solutions with slips, reports on them, corrections.

A verifier works the problem out again and puts what the solution says beside each value of its own:

    3 + 4 = 7 7 ok ; 7 * 5 - 6 ; 7 * 5 = 35 36 bad </think> finding 7 * 5 = 35 correctness : wrong

How deep it looks is left to chance, and so is whether a corrector looks at the report: the lessons teach the form,
and reinforcement learning what to do with it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from orgthink.grammar.actions import Answer
from orgthink.grammar.asyncthink import DIALECT
from orgthink.tasks.arithmetic import LARGEST
from orgthink.training.teachers.arithmetic import Step, steps, worth, written


@dataclass(frozen=True, slots=True)
class Worked:
    """A solution, right or wrong."""

    steps: tuple[Step, ...]
    answer: int

    @property
    def text(self) -> str:
        return f"{written(self.steps)} {DIALECT.render(Answer(f' {self.answer} '))}"


def worked(expression: str) -> Worked:
    """The right solution."""
    found = tuple(steps(expression.split()))
    return Worked(found, found[-1].value)


def slipped(expression: str, rng: random.Random) -> Worked:
    """A solution with a slip, whose answer is wrong: a wrong value, a line copied wrongly, or another answer."""
    right = worked(expression)
    while True:
        at = rng.randrange(len(right.steps))
        kind = rng.choices(("value", "copy", "answer"), (0.75, 0.15, 0.1))[0]
        if kind == "answer":
            found = Worked(right.steps, _near(right.answer, rng))
        else:
            wrong = _wrong_value(right.steps[at], rng) if kind == "value" else _wrong_copy(right.steps[at], rng)
            tail = None if wrong is None else _continued(wrong.rest)
            if wrong is None or tail is None:
                continue
            all_steps = (*right.steps[:at], wrong, *tail)
            found = Worked(all_steps, all_steps[-1].value)
        if found.answer != right.answer:
            return found


def _continued(rest: Sequence[str]) -> list[Step] | None:
    """The steps that follow a slip; `None` if they leave the integers that the models know."""
    try:
        tail = steps(rest)
    except ValueError:
        return None
    return tail if all(0 <= step.value <= LARGEST for step in tail) else None


def _wrong_value(step: Step, rng: random.Random) -> Step | None:
    a, operator, b = step.operation
    others = [worth(a, other, b) for other in "+-*" if other != operator]
    value = rng.choice(others) if rng.random() < 0.2 else _near(step.value, rng)
    if not 0 <= value <= LARGEST or value == step.value:
        return None
    # the value stands in the line once more often than before; where it stands is where the operation was
    rest = list(step.rest)
    places = [i for i, token in enumerate(rest) if token == str(step.value)]
    if len(places) != 1:
        return None
    rest[places[0]] = str(value)
    return Step(step.operation, value, tuple(rest))


def _wrong_copy(step: Step, rng: random.Random) -> Step | None:
    """The right value, but a number or an operator of the line after it is another."""
    rest = list(step.rest)
    places = [i for i, token in enumerate(rest) if token not in "()"]
    if len(places) < 2:
        return None
    at = rng.choice(places)
    rest[at] = rng.choice([o for o in "+-*" if o != rest[at]]) if rest[at] in "+-*" else str(_near(int(rest[at]), rng))
    return Step(step.operation, step.value, tuple(rest))


def _near(value: int, rng: random.Random) -> int:
    """Another integer, most often a near one."""
    while True:
        away = rng.choice((1, 1, 1, 2, 2, 3, 4, 5, 6, 8, 10, 10, 20, 30))
        other = value + rng.choice((-1, 1)) * away
        if 0 <= other <= LARGEST:
            return other


def report(expression: str, solution: Worked, depth: int | None = None) -> str:
    """A verifier's thinking and report. It looks at `depth` operations, or at all and at the answer."""
    right = worked(expression)
    lines: list[str] = []
    for i, step in enumerate(right.steps if depth is None else right.steps[:depth]):
        claimed = solution.steps[i] if i < len(solution.steps) else None
        same = claimed is not None and claimed.operation == step.operation
        operation = f"{' '.join(step.operation)} = {step.value}"
        said = str(claimed.value) if same and claimed is not None else "none"
        if said != str(step.value):
            return _reported([*lines, f"{operation} {said} bad"], operation)
        lines.append(f"{operation} {said} ok")
        if len(step.rest) > 1:
            lines.append(" ".join(step.rest))
    if depth is None:
        if solution.answer != right.answer:
            return _reported([*lines, f"{right.answer} {solution.answer} bad"], str(right.answer))
        lines.append(f"{right.answer} {solution.answer} ok")
    return _reported(lines, None)


def _reported(lines: Sequence[str], finding: str | None) -> str:
    thinking = " ; ".join(lines)
    verdict = "correct" if finding is None else "wrong"
    return f"{thinking} </think> finding {finding or 'none'} correctness : {verdict}".strip()


def false_report(expression: str, rng: random.Random) -> str:
    """A report that accuses a right solution, at the operation that a false finding names."""
    found, _ = false_finding(expression, rng)
    operation = found.removeprefix("finding ")
    lines: list[str] = []
    for step in worked(expression).steps:
        if " ".join(step.operation) == operation.partition(" = ")[0]:
            return _reported([*lines, f"{operation} {step.value} bad"], operation)
        lines.append(f"{' '.join(step.operation)} = {step.value} {step.value} ok")
        lines.append(" ".join(step.rest))
    raise AssertionError("a finding names one of the operations")


def finding(text: str) -> str:
    """What a corrector is shown of a report: from the end of the thinking to the verdict."""
    return text.partition("</think>")[2].partition("correctness")[0].strip()


def false_finding(expression: str, rng: random.Random) -> tuple[str, Worked]:
    """A finding that accuses a right solution, and the solution that believes it."""
    right = worked(expression)
    while True:
        at = rng.randrange(len(right.steps))
        wrong = _wrong_value(right.steps[at], rng)
        tail = None if wrong is None else _continued(wrong.rest)
        if wrong is not None and tail is not None:
            all_steps = (*right.steps[:at], wrong, *tail)
            found = f"finding {' '.join(wrong.operation)} = {wrong.value}"
            return found, Worked(all_steps, all_steps[-1].value)
