"""Lessons of solvers, verifiers and correctors for the pocket model: the cold start of MarsRL.

Two courses. `skill` teaches arithmetic in every role. `form` follows and teaches the format of the roles. There, chance
decides whether a solver stops early, how many steps a verifier checks, whether it raises a false alarm, and whether a
corrector follows its report. The result is like the open models of the paper: it follows the roles' instructions, but
hardly detects or corrects errors. Reinforcement learning teaches this.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from orgthink.grammar.solution import THOUGHT
from orgthink.grammar.verdict import read_report
from orgthink.organizations.prompts import prompt
from orgthink.record.episode import Origin, Problem, Trace
from orgthink.tasks import TASKS
from orgthink_pocket.lessons.asyncthink import teacher_trace
from orgthink_pocket.style import VERDICTS
from orgthink_pocket.tasks.arithmetic import LARGEST
from orgthink_pocket.teachers import arithmetic_review as arithmetic
from orgthink_pocket.teachers import countdown_review as countdown
from orgthink_pocket.teachers.arithmetic import apply
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
class Behaviour:
    """How the roles of a course behave."""

    shallow: float
    """Share of a verifier's lessons that check only the first operations; at countdown, that omit the values. Half as
    many omit there whether the numbers are given."""
    least: int
    """Fewest operations that a shallow check covers."""
    alarm: float
    """Share of a verifier's lessons on right solutions that report an error."""
    careless: float
    """Share of a corrector's lessons that keep a reported error, or follow a wrong report."""
    hasty: float
    """Share of a solver's lessons that stop early, and of wrong solutions to verify that do so."""

    def hurries(self, rng: random.Random) -> bool:
        """Whether a solver stops early."""
        return self.hasty > 0 and rng.random() < self.hasty

    def alarmed(self, rng: random.Random) -> bool:
        """Whether a verifier reports an error in a right solution."""
        return self.alarm > 0 and rng.random() < self.alarm


COURSES = {
    "skill": Behaviour(shallow=0.7, least=1, alarm=0.0, careless=0.5, hasty=0.0),
    "form": Behaviour(shallow=0.95, least=0, alarm=0.15, careless=0.75, hasty=0.25),
}

Course = Literal["skill", "form"]


def lessons(course: Course, seed: int, pool: int) -> Iterator[Trace]:
    """An endless stream of lessons, each a trace; the same for the same pool."""
    behaviour = COURSES[course]
    rng = random.Random(f"roles {seed}/{pool}")
    problems = {name: TASKS[name].problems("train", rng.randrange(1 << 30)) for name in SHARES if name in TASKS}
    while True:
        (kind,) = rng.choices(list(SHARES), list(SHARES.values()))
        if kind == "sums":
            yield _sums(rng)
            continue
        (role,) = rng.choices(list(ROLES), list(ROLES.values()))
        yield (_arithmetic if kind == "arithmetic-mini" else _countdown)(role, next(problems[kind]), behaviour, rng)


def _sums(rng: random.Random) -> Trace:
    """A drill: operations with values in the models' range; most have a small operand."""
    done: list[str] = []
    while len(done) < DRILLED:
        operator = rng.choice("+-*")
        one, other = rng.randint(1, LARGEST), rng.choice([rng.randint(1, most) for most in (20, 20, LARGEST)])
        if operator == "*":
            one = rng.randint(1, LARGEST // other)
        left, right = (one, other) if operator == "-" or rng.random() < 0.5 else (other, one)
        value = apply(str(left), operator, str(right))
        if 0 <= value <= LARGEST:
            done.append(f"{left} {operator} {right} = {value} ;")
    return teacher_trace("thinker", None, "facts arithmetic", [(f" {' '.join(done)}", Origin.SAMPLED)])


def _arithmetic(role: str, problem: Problem, behaviour: Behaviour, rng: random.Random) -> Trace:
    expression = problem.data["expression"]
    right = arithmetic.worked(expression)
    if role == "solver":
        written = arithmetic.hasty(expression, rng) if behaviour.hurries(rng) else right
        return _lesson(role, problem, written.text)
    wrong = rng.random() < WRONG
    solution = arithmetic.slipped(expression, rng) if wrong else right
    if wrong and behaviour.hurries(rng):
        hasty = arithmetic.hasty(expression, rng)
        solution = solution if hasty.answer == right.answer else hasty
    if role == "verifier":
        depth = rng.randint(behaviour.least, len(right.steps)) if rng.random() < behaviour.shallow else None
        if not wrong and behaviour.alarmed(rng):
            return _lesson(role, problem, arithmetic.false_report(expression, rng), solution.text)
        return _lesson(role, problem, arithmetic.report(expression, solution, depth), solution.text)
    findings, believed = arithmetic.false_finding(expression, rng)
    if wrong:
        findings, believed = _findings(arithmetic.report(expression, solution)), solution
    corrected = believed if rng.random() < behaviour.careless else right
    return _lesson(role, problem, corrected.text, solution.text, findings)


def _countdown(role: str, problem: Problem, behaviour: Behaviour, rng: random.Random) -> Trace:
    numbers, target = problem.data["numbers"], problem.data["target"]
    order = rng.sample(OPERATORS, len(OPERATORS))
    solved, right = countdown.solved(numbers, target, order)
    if role == "solver":
        if behaviour.hurries(rng):
            solved = f"{THOUGHT} {countdown.answered(countdown.near_miss(numbers, target, rng))}"
        return _lesson(role, problem, solved)
    wrong = rng.random() < WRONG or role == "corrector"  # countdown has no false reports to follow
    answer = countdown.near_miss(numbers, target, rng) if wrong else right
    solution = countdown.answered(answer)
    if role == "verifier":
        values, given = rng.random() > behaviour.shallow, rng.random() > behaviour.shallow / 2
        if not wrong and behaviour.alarmed(rng):
            return _lesson(role, problem, countdown.false_report(answer, rng), solution)
        report = countdown.report(numbers, target, answer, values=values, given=given)
        return _lesson(role, problem, report, solution)
    findings = _findings(countdown.report(numbers, target, answer))
    corrected = f"{THOUGHT} {solution}" if rng.random() < behaviour.careless else solved
    return _lesson(role, problem, corrected, solution, findings)


def _findings(report: str) -> str:
    """The part of a report that a corrector sees."""
    return read_report(report, VERDICTS).findings


def _lesson(role: str, problem: Problem, text: str, solution: str = "", report: str = "") -> Trace:
    question = prompt("pocket", role, problem, solution=solution, report=report)[0].content
    return teacher_trace(role, None, question, [(f" {text}", Origin.SAMPLED)])
