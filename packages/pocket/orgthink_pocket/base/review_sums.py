"""Reviews of `arithmetic-mini` and `sums-mini`: every operation is worked out again, next to the value of the solution.

    part 1 : 3 + 4 * 2 ; 4 * 2 = 8 8 ok ; … ; 3 + 8 = 11 12 bad </think> finding part 1 : 3 + 8 = 11 correctness : wrong

A check ends with the first error: everything after it follows from it.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from orgthink.record.episode import Problem
from orgthink_pocket.base.arithmetic import value
from orgthink_pocket.base.review import ProposedSolution, Reviews, answer, answer_of, reported
from orgthink_pocket.base.slips import hasty, slipped
from orgthink_pocket.tasks.parts import evaluated
from orgthink_pocket.tasks.steps import Operation, steps, written
from orgthink_pocket.tasks.sums import joined

EARLY = 0.1
"""Share of slips that leave out the last operations."""


class Segment(NamedTuple):
    """The work on one expression: a group of a sum, or the whole."""

    name: str
    """Name of the group; empty for the whole."""
    expression: str
    """What is to be computed."""
    steps: tuple[Operation, ...]
    """Its operations as they are written."""
    value: str
    """Its value as it is written."""


def _segments(problem: Problem, slip_at: int | None, rng: random.Random) -> list[Segment] | None:
    """The solution, with a slip in one segment; `None` if that leaves the integers of the models."""
    groups: list[str] = problem.data.get("groups", [])
    done = [_worked(str(i), group, slip_at == i - 1, rng) for i, group in enumerate(groups, 1)]
    last = joined([segment.value for segment in done], problem.data["signs"]) if groups else problem.data["expression"]
    if evaluated(last) is None:
        return None
    return [*done, _worked("", last, slip_at == len(groups), rng)]


def _worked(name: str, expression: str, wrong: bool, rng: random.Random) -> Segment:
    if not wrong:
        return Segment(name, expression, tuple(steps(expression.split())), value(expression))
    while True:
        early = rng.random() < EARLY and len(steps(expression.split())) > 1
        found = hasty(expression, rng) if early else slipped(expression, rng)
        if str(found.answer) != value(expression):
            return Segment(name, expression, found.steps, str(found.answer))


class SumReviews(Reviews):
    """Solutions whose steps are part of them."""

    def draft(self, problem: Problem, wrong: bool, rng: random.Random) -> ProposedSolution:
        expected = str(problem.data["value"])
        while True:
            at = rng.randrange(len(problem.data.get("groups", [])) + 1) if wrong else None
            found = _segments(problem, at, rng)
            if found is not None and (found[-1].value != expected) == wrong:
                return ProposedSolution(_text(found), not wrong)

    def report(self, problem: Problem, solution: str) -> str:
        lines: list[str] = []
        written_lines = [line.strip() for line in solution.partition("<ANSWER>")[0].split(" ;")]
        for segment in _right(problem):
            if segment.name:
                lines.append(f"part {segment.name} : {segment.expression}")
                claimed = _between(written_lines, segment.name)
            else:
                if len(_right(problem)) > 1:
                    lines.append(segment.expression)
                claimed = _after_parts(written_lines)
            bad = _checked(segment, claimed, answer_of(solution), lines)
            if bad is not None:
                return reported(lines, f"part {segment.name} : {bad}" if segment.name else bad)
        return reported(lines)

    def corrected(self, problem: Problem, solution: str, findings: str) -> str:
        return _text(_right(problem))

    def doubt(self, problem: Problem, solution: str, rng: random.Random) -> str:
        segment = rng.choice([segment for segment in _right(problem) if segment.steps])
        step = rng.choice(segment.steps)
        finding = f"{' '.join(step.terms)} = {step.value}"
        return f"finding part {segment.name} : {finding}" if segment.name else f"finding {finding}"


def _right(problem: Problem) -> list[Segment]:
    found = _segments(problem, None, random.Random(0))
    assert found is not None
    return found


def _text(segments: list[Segment]) -> str:
    """The text of a solver."""
    lines: list[str] = []
    for segment in segments:
        if segment.name:
            lines += [
                f"part {segment.name} : {segment.expression}",
                written(segment.steps),
                f"! {segment.name} {segment.value}",
            ]
        else:
            lines += [segment.expression] * (len(segments) > 1) + [written(segment.steps)]
    return f"{' ; '.join(filter(None, lines))} {answer(segments[-1].value)}"


def _between(lines: list[str], name: str) -> list[str]:
    """The lines of a part, its value last."""
    start = next(i for i, line in enumerate(lines) if line.startswith(f"part {name} :"))
    end = next(i for i, line in enumerate(lines) if line.startswith(f"! {name} "))
    return lines[start + 1 : end + 1]


def _after_parts(lines: list[str]) -> list[str]:
    """The lines after the last part."""
    ends = [i for i, line in enumerate(lines) if line.startswith("! ")]
    return lines[ends[-1] + 2 :] if ends else lines


def _checked(segment: Segment, claimed: list[str], answered: str, lines: list[str]) -> str | None:
    """Add the checks of a segment to the lines; returns what is wrong."""
    equations = [line for line in claimed if "=" in line]
    for i, step in enumerate(segment.steps):
        own = " ".join(step.terms)
        terms, _, number = equations[i].partition(" = ") if i < len(equations) else ("", "", "")
        number = number if terms == own else "none"
        right = number == str(step.value)
        lines.append(f"{own} = {step.value} {number} {'ok' if right else 'bad'}")
        if not right:
            return f"{own} = {step.value}"
        if len(step.rest) > 1:
            lines.append(" ".join(step.rest))
    written_value = claimed[-1].split()[-1] if segment.name else answered
    mark = f"! {segment.name} " if segment.name else ""
    right = written_value == segment.value
    lines.append(f"{mark}{segment.value} {written_value} {'ok' if right else 'bad'}")
    return None if right else segment.value
