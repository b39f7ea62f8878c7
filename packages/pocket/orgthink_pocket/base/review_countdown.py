"""Reviews of `countdown-mini-single` and `countdown-mini-four`: numbers and values of each expression are checked.

    17 : 4 ok 9 ok 4 bad ; 31 : 2 ok 13 ok 5 ok ; … ; 26 + 5 = 31 31 ok </think> finding 17 correctness : wrong

A corrector scans again for what a finding names, and keeps the rest.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from orgthink.grammar.actions import THOUGHT
from orgthink.record.episode import Problem
from orgthink_pocket.base.countdown import first, named
from orgthink_pocket.base.family import NOTHING
from orgthink_pocket.base.review import ProposedSolution, Reviews, answer, answer_of, reported
from orgthink_pocket.base.scan import checked, near_miss, numbers_of, worked


class SingleReviews(Reviews):
    """One expression."""

    def draft(self, problem: Problem, wrong: bool, rng: random.Random) -> ProposedSolution:
        data = problem.data
        found = near_miss(data["numbers"], data["target"], rng) if wrong else first(data, "1")[1]
        return ProposedSolution(answer(found), not wrong)

    def report(self, problem: Problem, solution: str) -> str:
        found = answer_of(solution)
        line, right = _judged(problem.data, found)
        finding = "nothing" if found == NOTHING else found
        return reported([line], None if right else finding)

    def corrected(self, problem: Problem, solution: str, findings: str) -> str:
        text, hit = first(problem.data, "1")
        if findings == f"finding {hit}":  # a false finding
            line, _ = _judged(problem.data, hit)
            return f"{line} {THOUGHT} {answer(hit)}"
        return f"{text} {THOUGHT} {answer(hit)}"

    def doubt(self, problem: Problem, solution: str, rng: random.Random) -> str:
        return f"finding {answer_of(solution)}"


class SeveralReviews(Reviews):
    """Several expressions, each with its target."""

    def draft(self, problem: Problem, wrong: bool, rng: random.Random) -> ProposedSolution:
        found = {str(part["target"]): first(part, "1")[1] for part in problem.data["parts"]}
        if wrong:
            part = rng.choice(problem.data["parts"])
            found[str(part["target"])] = near_miss(part["numbers"], part["target"], rng)
        return ProposedSolution(answer(_listed(found)), not wrong)

    def report(self, problem: Problem, solution: str) -> str:
        lines: list[str] = []
        bad: list[str] = []
        for target, expression in _read(solution).items():
            line, right = _judged(named(problem, target), expression)
            lines.append(f"{target} : {line}")
            bad += [] if right else [target]
        return reported(lines, " ; ".join(bad) or None)

    def corrected(self, problem: Problem, solution: str, findings: str) -> str:
        found, lines = _read(solution), list[str]()
        for target in findings.removeprefix("finding ").split(" ; "):
            text, found[target] = first(named(problem, target), target)
            lines.append(f"{target} : {text}")
        return f"{' '.join(lines)} {THOUGHT} {answer(_listed(found))}"

    def doubt(self, problem: Problem, solution: str, rng: random.Random) -> str:
        return f"finding {rng.choice(list(_read(solution)))}"


def _listed(found: Mapping[str, str]) -> str:
    return " ; ".join(f"{target} = {expression}" for target, expression in found.items())


def _read(solution: str) -> dict[str, str]:
    """Target → expression of a solution of several parts."""
    return dict(part.split(" = ") for part in answer_of(solution).split(" ; "))


def _judged(part: Mapping[str, Any], expression: str) -> tuple[str, bool]:
    """The check of one expression, and whether it is right."""
    if expression == NOTHING:
        return "none bad", False
    used = numbers_of(expression)
    bad = next((i for i, token in enumerate(used) if int(token) not in part["numbers"] or token in used[:i]), None)
    line = checked(used, bad)
    if bad is not None:
        return line, False
    found = worked(expression)
    assert found is not None
    inner, outer, made = found
    right = made == part["target"]
    return f"{line} ; {inner} ; {outer} {part['target']} {'ok' if right else 'bad'}", right
