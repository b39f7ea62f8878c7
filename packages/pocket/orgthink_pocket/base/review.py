"""Lessons of verifiers and correctors: half of the solutions are right, half have one random slip.

Verdicts are true. A verifier checks to the end, or to the first error where everything after it depends on it. Its
finding says where the error is. A corrector keeps the rest and mends that place. In a share of `DOUBTED` a corrector
gets a right solution with a false finding, and keeps the solution.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from orgthink.grammar.actions import THOUGHT, Answer
from orgthink.grammar.asyncthink import DIALECT
from orgthink.grammar.verdict import read_report
from orgthink.record.episode import Origin, Problem, Trace
from orgthink_pocket.base.family import question, teacher_trace
from orgthink_pocket.style import VERDICTS

WRONG = 0.5
"""Share of wrong solutions."""
DOUBTED = 0.1
"""Share of a corrector's lessons in which the solution is right."""


class ProposedSolution(NamedTuple):
    """A solution as others see it, and whether it is right."""

    text: str
    right: bool


class Reviews(ABC):
    """How solutions of one task go wrong, are checked and are mended."""

    @abstractmethod
    def draft(self, problem: Problem, wrong: bool, rng: random.Random) -> ProposedSolution:
        """A right solution, or one with a random slip."""

    @abstractmethod
    def report(self, problem: Problem, solution: str) -> str:
        """A verifier's text about a solution that `draft` wrote."""

    @abstractmethod
    def corrected(self, problem: Problem, solution: str, findings: str) -> str:
        """A corrector's text."""

    @abstractmethod
    def doubt(self, problem: Problem, solution: str, rng: random.Random) -> str:
        """Findings that name a place of a right solution."""


def verifier(reviews: Reviews, problem: Problem, rng: random.Random) -> Trace:
    """A lesson of a verifier."""
    draft = reviews.draft(problem, rng.random() < WRONG, rng)
    return _lesson("verifier", problem, reviews.report(problem, draft.text), draft.text)


def corrector(reviews: Reviews, problem: Problem, rng: random.Random) -> Trace:
    """A lesson of a corrector."""
    doubted = rng.random() < DOUBTED
    draft = reviews.draft(problem, not doubted, rng)
    if doubted:
        findings = reviews.doubt(problem, draft.text, rng)
    else:
        findings = read_report(reviews.report(problem, draft.text), VERDICTS).findings
    return _lesson("corrector", problem, reviews.corrected(problem, draft.text, findings), draft.text, findings)


def _lesson(role: str, problem: Problem, text: str, solution: str, report: str = "") -> Trace:
    request = question(role, problem, solution=solution, report=report)
    return teacher_trace(role, None, request, [(f" {text}", Origin.SAMPLED)])


def answer(text: str) -> str:
    """An answer in the tags of the grammar."""
    return DIALECT.render(Answer(f" {text} "))


def answer_of(solution: str) -> str:
    """The answer in a solution that `draft` wrote."""
    return solution.partition(DIALECT.answer[0])[2].partition(DIALECT.answer[1])[0].strip()


def reported(lines: Sequence[str], finding: str | None = None) -> str:
    """A verifier's text: lines of thinking and a report; without a finding the verdict is correct."""
    verdict = "correct" if finding is None else "wrong"
    return f"{' ; '.join(lines)} {THOUGHT} finding {finding or 'none'} correctness : {verdict}".strip()
