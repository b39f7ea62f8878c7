r"""Mathematics with a short final answer, from a file of rows like DeepScaleR's (section 4.3 of AsyncThink).

The columns are those of `orgthink.tasks.rows`. The file is the split: use one for training and another for testing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orgthink.record.episode import Grade, Problem
from orgthink.tasks.math_guard import extract, is_same, normal_form, written
from orgthink.tasks.math_verifier import require_math_verify
from orgthink.tasks.rows import RowTask
from orgthink.tasks.task import Solution

ANSWER_FORM = "Put your final answer in \\boxed{}."
"""The same for files and benchmarks. Prompts of paper that send the bare problem leave it out."""


class Math(RowTask):
    """`math:FILE`."""

    name = "math"
    form = ANSWER_FORM

    def problem(self, text: str, answer: Any, row: Mapping[str, Any] | None = None) -> Problem:
        """A problem of a row. UserError without math-verify, which grades it."""
        require_math_verify()
        return super().problem(text, answer, row)

    def fits(self, data: Mapping[str, Any]) -> bool:
        answer = data.get("answer")
        return isinstance(answer, str) and bool(answer.strip())

    def grade(self, problem: Problem, answer: str) -> Grade:
        """1 if the final result of the answer equals the row's answer, else 0."""
        return Grade(int(is_same(problem.data["answer"], answer, problem.query)), problem.required)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        """One solution: the final result. Two spellings of a number are equal; formulas are compared as text."""
        return [Solution(normal_form(answer, problem.query), written(answer))] if extract(answer) else []


MATH = Math()
"""`math:FILE`: problems and reference answers of a file."""
