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
from itertools import takewhile

from orgthink.grammar.actions import Answer
from orgthink.grammar.asyncthink import DIALECT
from orgthink.grammar.solution import THOUGHT
from orgthink_pocket.tasks.arithmetic import LARGEST
from orgthink_pocket.teachers.arithmetic import Step, steps, worth, written


@dataclass(frozen=True, slots=True)
class Worked:
    """A solution, right or wrong."""

    steps: tuple[Step, ...]
    """One for each operator of the expression, or fewer if it is hasty."""
    answer: int
    """What is said in the end; only a slip makes it another value than the last step's."""

    @property
    def text(self) -> str:
        """As a solver writes it."""
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
        (kind,) = rng.choices(("value", "copy", "answer"), (0.75, 0.15, 0.1))
        if kind == "answer":
            found = Worked(right.steps, _near(right.answer, rng))
        else:
            slip = (_wrong_value if kind == "value" else _wrong_copy)(right.steps[at], rng)
            found = None if slip is None else _gone_on(right, at, slip)
        if found is not None and found.answer != right.answer:
            return found


def hasty(expression: str, rng: random.Random) -> Worked:
    """A solution that answers with the value of a step before the last one; it may be right by chance."""
    done = worked(expression).steps
    done = done[: rng.randint(1, len(done) - 1)]
    return Worked(done, done[-1].value)


def _gone_on(right: Worked, at: int, slip: Step) -> Worked | None:
    """The solution that slips at a step and goes on without another; `None` if it leaves the models' integers."""
    try:
        tail = steps(slip.rest)
    except ValueError:
        return None
    if not all(0 <= step.value <= LARGEST for step in tail):
        return None
    found = (*right.steps[:at], slip, *tail)
    return Worked(found, found[-1].value)


def _wrong_value(step: Step, rng: random.Random) -> Step | None:
    """The step with another value: what another operator would make, or a near one."""
    a, operator, b = step.operation
    others = [worth(a, other, b) for other in "+-*" if other != operator]
    value = rng.choice(others) if rng.random() < 0.2 else _near(step.value, rng)
    if not 0 <= value <= LARGEST or value == step.value:
        return None
    # a number that stands in the line twice does not tell which of the two this step has put there
    if step.rest.count(str(step.value)) != 1:
        return None
    return Step(step.operation, value, tuple(str(value) if token == str(step.value) else token for token in step.rest))


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
    """A verifier's thinking and report. It looks at the first `depth` operations, or at all and at the answer.

    A step that is missing is a finding like a wrong one.
    """
    right = worked(expression)
    lines: list[str] = []
    for i, step in enumerate(right.steps[:depth]):
        claimed = solution.steps[i] if i < len(solution.steps) else None
        said = str(claimed.value) if claimed is not None and claimed.operation == step.operation else "none"
        if said != str(step.value):
            return reported([*lines, f"{_done(step)} {said} bad"], _done(step))
        lines.append(f"{_done(step)} {said} ok")
        if len(step.rest) > 1:
            lines.append(" ".join(step.rest))
    if depth is None:
        if solution.answer != right.answer:
            return reported([*lines, f"{right.answer} {solution.answer} bad"], str(right.answer))
        lines.append(f"{right.answer} {solution.answer} ok")
    return reported(lines)


def false_report(expression: str, rng: random.Random) -> str:
    """A report that accuses a right solution of an operation that it got right."""
    wrong, _ = _misjudged(expression, rng)
    before = takewhile(lambda step: step.operation != wrong.operation, worked(expression).steps)
    lines = [line for step in before for line in (f"{_done(step)} {step.value} ok", " ".join(step.rest))]
    return reported([*lines, f"{_done(wrong)} {worth(*wrong.operation)} bad"], _done(wrong))


def false_finding(expression: str, rng: random.Random) -> tuple[str, Worked]:
    """A finding that accuses a right solution, and the solution that believes it."""
    wrong, believed = _misjudged(expression, rng)
    return f"finding {_done(wrong)}", believed


def _misjudged(expression: str, rng: random.Random) -> tuple[Step, Worked]:
    """A step with a wrong value, and the solution that goes on from it; its answer may be right all the same."""
    right = worked(expression)
    while True:
        at = rng.randrange(len(right.steps))
        wrong = _wrong_value(right.steps[at], rng)
        found = None if wrong is None else _gone_on(right, at, wrong)
        if wrong is not None and found is not None:
            return wrong, found


def _done(step: Step) -> str:
    return f"{' '.join(step.operation)} = {step.value}"


def reported(lines: Sequence[str], finding: str | None = None) -> str:
    """A verifier's text: its thoughts, line by line, and a report; without a finding all is well."""
    verdict = "correct" if finding is None else "wrong"
    return f"{' ; '.join(lines)} {THOUGHT} finding {finding or 'none'} correctness : {verdict}".strip()
