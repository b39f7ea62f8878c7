"""Lessons of solvers, verifiers and correctors for the pocket model: the cold start of MarsRL.

Two courses. `skill` teaches arithmetic, in every role. `form` comes after it and teaches how the roles speak, with
judgement left to chance: whether a solver thinks to the end, how far a verifier looks, whether it raises a false
alarm, whether a corrector takes its report to heart. So the model ends as the paper finds open models: it follows the
roles' instructions, and hardly detects or corrects errors. What pays is for reinforcement learning to find.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from orgthink.episode import Origin, Problem, Trace
from orgthink.grammar.solution import THOUGHT
from orgthink.grammar.verdict import read_report
from orgthink.organizations.prompts import prompt
from orgthink.tasks import TASKS
from orgthink_pocket.lessons.asyncthink import teacher_trace
from orgthink_pocket.style import VERDICTS
from orgthink_pocket.tasks.arithmetic import LARGEST
from orgthink_pocket.teachers import arithmetic_review as arithmetic
from orgthink_pocket.teachers import countdown_review as countdown
from orgthink_pocket.teachers.arithmetic import worth
from orgthink_pocket.teachers.countdown import OPERATORS

SHARES = {"arithmetic-mini": 0.52, "countdown-mini-single": 0.33, "sums": 0.15}
"""Share of each kind of lesson; `sums` drills single operations."""
ROLES = {"solver": 0.36, "verifier": 0.36, "corrector": 0.28}
"""Share of each role."""
WRONG = 0.6
"""Share of solutions with a slip."""
DRILLED = 12
"""Operations of a lesson of `sums`."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """How the roles of a course behave."""

    shallow: float
    """Share of a verifier's lessons that look at the first operations only, or at countdown leave the values out; half
    as many leave out there whether the numbers are given."""
    least: int
    """Operations that a shallow look takes in at least."""
    alarm: float
    """Share of a verifier's lessons on right solutions that accuse one."""
    careless: float
    """Share of a corrector's lessons that keep what the report finds wrong, or believe a wrong report."""
    hasty: float
    """Share of a solver's lessons that answer before they are through, and of the wrong arithmetic that others see."""

    def hurries(self, rng: random.Random) -> bool:
        """Whether a solver answers before it is through."""
        return self.hasty > 0 and rng.random() < self.hasty

    def alarmed(self, rng: random.Random) -> bool:
        """Whether a verifier accuses a right solution."""
        return self.alarm > 0 and rng.random() < self.alarm


COURSES = {
    "skill": Judgement(shallow=0.7, least=1, alarm=0.0, careless=0.5, hasty=0.0),
    "form": Judgement(shallow=0.95, least=0, alarm=0.15, careless=0.75, hasty=0.25),
}

Course = Literal["skill", "form"]


def lessons(course: Course, seed: int, pool: int) -> Iterator[Trace]:
    """An endless stream of lessons, each a trace; the same for the same pool."""
    judgement = COURSES[course]
    rng = random.Random(f"roles {seed}/{pool}")
    problems = {name: TASKS[name].problems("train", rng.randrange(1 << 30)) for name in SHARES if name in TASKS}
    while True:
        (kind,) = rng.choices(list(SHARES), list(SHARES.values()))
        if kind == "sums":
            yield _sums(rng)
            continue
        (role,) = rng.choices(list(ROLES), list(ROLES.values()))
        yield (_arithmetic if kind == "arithmetic-mini" else _countdown)(role, next(problems[kind]), judgement, rng)


def _sums(rng: random.Random) -> Trace:
    """A drill: operations whose values are in the models' range, with their values; most have a small number."""
    done: list[str] = []
    while len(done) < DRILLED:
        operator = rng.choice("+-*")
        one, other = rng.randint(1, LARGEST), rng.choice([rng.randint(1, most) for most in (20, 20, LARGEST)])
        if operator == "*":
            one = rng.randint(1, LARGEST // other)
        left, right = (one, other) if operator == "-" or rng.random() < 0.5 else (other, one)
        value = worth(str(left), operator, str(right))
        if 0 <= value <= LARGEST:
            done.append(f"{left} {operator} {right} = {value} ;")
    return teacher_trace("thinker", None, "facts arithmetic", [(f" {' '.join(done)}", Origin.SAMPLED)])


def _arithmetic(role: str, problem: Problem, judgement: Judgement, rng: random.Random) -> Trace:
    expression = problem.data["expression"]
    right = arithmetic.worked(expression)
    if role == "solver":
        said = arithmetic.hasty(expression, rng) if judgement.hurries(rng) else right
        return _lesson(role, problem, said.text)
    wrong = rng.random() < WRONG
    shown = arithmetic.slipped(expression, rng) if wrong else right
    if wrong and judgement.hurries(rng):
        hasty = arithmetic.hasty(expression, rng)
        shown = shown if hasty.answer == right.answer else hasty
    if role == "verifier":
        depth = rng.randint(judgement.least, len(right.steps)) if rng.random() < judgement.shallow else None
        if not wrong and judgement.alarmed(rng):
            return _lesson(role, problem, arithmetic.false_report(expression, rng), shown.text)
        return _lesson(role, problem, arithmetic.report(expression, shown, depth), shown.text)
    findings, believed = arithmetic.false_finding(expression, rng)
    if wrong:
        findings, believed = _findings(arithmetic.report(expression, shown)), shown
    said = believed if rng.random() < judgement.careless else right
    return _lesson(role, problem, said.text, shown.text, findings)


def _countdown(role: str, problem: Problem, judgement: Judgement, rng: random.Random) -> Trace:
    numbers, target = problem.data["numbers"], problem.data["target"]
    order = rng.sample(OPERATORS, len(OPERATORS))
    solved, right = countdown.solved(numbers, target, order)
    if role == "solver":
        if judgement.hurries(rng):
            solved = f"{THOUGHT} {countdown.answered(countdown.near_miss(numbers, target, rng))}"
        return _lesson(role, problem, solved)
    wrong = rng.random() < WRONG or role == "corrector"  # there is no false alarm that it could believe
    shown = countdown.near_miss(numbers, target, rng) if wrong else right
    solution = countdown.answered(shown)
    if role == "verifier":
        values, given = rng.random() > judgement.shallow, rng.random() > judgement.shallow / 2
        if not wrong and judgement.alarmed(rng):
            return _lesson(role, problem, countdown.false_report(shown, rng), solution)
        report = countdown.report(numbers, target, shown, values=values, given=given)
        return _lesson(role, problem, report, solution)
    findings = _findings(countdown.report(numbers, target, shown))
    said = f"{THOUGHT} {solution}" if rng.random() < judgement.careless else solved
    return _lesson(role, problem, said, solution, findings)


def _findings(report: str) -> str:
    """What a corrector is shown of a report."""
    return read_report(report, VERDICTS).findings


def _lesson(role: str, problem: Problem, said: str, solution: str = "", report: str = "") -> Trace:
    asked = prompt("pocket", role, problem, solution=solution, report=report)[0].content
    return teacher_trace(role, None, asked, [(f" {said}", Origin.SAMPLED)])
