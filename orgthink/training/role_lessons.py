"""Lessons of solvers, verifiers and correctors for the pocket model: the cold start of MarsRL.

Two courses. `skill` teaches arithmetic, in every role. `form` comes after it and teaches how the roles speak, with
judgement left to chance: how far a verifier looks, whether it raises a false alarm, whether a corrector takes its
report to heart. So the model ends as the paper finds open models: it follows the roles' instructions, and hardly
detects or corrects errors. What pays is for reinforcement learning to find.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from orgthink.episode import Origin, Problem, Trace
from orgthink.organizations.prompts import prompt
from orgthink.tasks import TASKS
from orgthink.training.cold_start import teacher_trace
from orgthink.training.teachers import arithmetic_review as arithmetic
from orgthink.training.teachers import countdown_review as countdown
from orgthink.training.teachers.arithmetic import worth
from orgthink.training.teachers.countdown import OPERATORS

SHARES = {"arithmetic-mini": 0.52, "countdown-mini-single": 0.33, "sums": 0.15}
"""Share of each kind of lesson; `sums` drills single operations."""
ROLES = {"solver": 0.36, "verifier": 0.36, "corrector": 0.28}
"""Share of each role."""
WRONG = 0.6
"""Share of solutions with a slip."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """How verifiers and correctors of a course behave."""

    shallow: float
    """Share of a verifier's lessons that look at a part of the solution only."""
    least: int
    """Operations that a shallow look takes in at least."""
    alarm: float
    """Share of a verifier's lessons on right solutions that accuse one."""
    careless: float
    """Share of a corrector's lessons that keep what the report finds wrong, or believe a wrong report."""


COURSES = {"skill": Judgement(0.7, 1, 0.0, 0.5), "form": Judgement(0.95, 0, 0.15, 0.75)}

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
    """A drill: operations whose values are in the models' range, with their values."""
    done: list[str] = []
    while len(done) < 12:
        operator = rng.choice("+-*")
        large, small = rng.randint(1, 399), rng.choice((rng.randint(1, 20), rng.randint(1, 20), rng.randint(1, 399)))
        if operator == "*":
            large = rng.randint(1, max(1, 399 // small))
        a, b = (large, small) if operator == "-" or rng.random() < 0.5 else (small, large)
        if 0 <= worth(str(a), operator, str(b)) <= 399:
            done.append(f"{a} {operator} {b} = {worth(str(a), operator, str(b))} ;")
    return teacher_trace("thinker", None, "facts arithmetic", [(f" {' '.join(done)}", Origin.SAMPLED)])


def _arithmetic(role: str, problem: Problem, judgement: Judgement, rng: random.Random) -> Trace:
    expression = problem.data["expression"]
    right = arithmetic.worked(expression)
    if role == "solver":
        return _lesson(role, problem, right.text)
    wrong = rng.random() < WRONG
    shown = arithmetic.slipped(expression, rng) if wrong else right
    if role == "verifier":
        depth = rng.randint(judgement.least, len(right.steps)) if rng.random() < judgement.shallow else None
        if not wrong and judgement.alarm and rng.random() < judgement.alarm:
            return _lesson(role, problem, arithmetic.false_report(expression, rng), shown.text)
        return _lesson(role, problem, arithmetic.report(expression, shown, depth), shown.text)
    found, believed = arithmetic.false_finding(expression, rng)
    if wrong:
        found, believed = arithmetic.finding(arithmetic.report(expression, shown)), shown
    said = believed if rng.random() < judgement.careless else right
    return _lesson(role, problem, said.text, shown.text, found)


def _countdown(role: str, problem: Problem, judgement: Judgement, rng: random.Random) -> Trace:
    numbers, target = problem.data["numbers"], problem.data["target"]
    order = rng.sample(OPERATORS, len(OPERATORS))
    solved = countdown.solved(numbers, target, order)
    if role == "solver":
        return _lesson(role, problem, solved)
    right = countdown.hit_of(solved)
    shown = countdown.near_miss(numbers, target, rng) if rng.random() < WRONG else right
    if role == "verifier":
        values, given = rng.random() > judgement.shallow, rng.random() > judgement.shallow / 2
        report = countdown.report(numbers, target, shown, values=values, given=given)
        if shown == right and judgement.alarm and rng.random() < judgement.alarm:
            report = countdown.false_report(shown, rng)
        return _lesson(role, problem, report, countdown.answered(shown))
    wrong = shown if shown != right else countdown.near_miss(numbers, target, rng)
    found = arithmetic.finding(countdown.report(numbers, target, wrong))
    kept = f"</think> {countdown.answered(wrong)}"
    return _lesson(
        role, problem, kept if rng.random() < judgement.careless else solved, countdown.answered(wrong), found
    )


def _lesson(role: str, problem: Problem, said: str, solution: str = "", report: str = "") -> Trace:
    asked = prompt("pocket", role, problem, solution=solution, report=report)[0].content
    return teacher_trace(role, None, asked, [(f" {said}", Origin.SAMPLED)])
