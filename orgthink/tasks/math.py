r"""Mathematics with a short final answer, from a file of rows like DeepScaleR's (section 4.3 of AsyncThink).

A row of the file (parquet, CSV, JSON lines or a JSON list) has a `problem`, `question` or `prompt`, and its `answer` or
`target`, of which what follows `####` counts, as in GSM8K. Other columns, such as `solution`, are ignored. The file is
the split: use one for training and another for testing.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from orgthink.record.episode import Grade, Problem
from orgthink.tasks.math_guard import extract, is_same, normal_form, written
from orgthink.tasks.math_verifier import require_math_verify
from orgthink.tasks.task import FileTask, Solution
from orgthink.util.errors import UserError

ANSWER_FORM = "Put your final answer in \\boxed{}."
"""The same for files and benchmarks. Prompts of paper that send the bare problem leave it out."""
_QUESTIONS, _ANSWERS = ("problem", "question", "prompt"), ("answer", "target")
"""Columns that hold the question and the reference answer: the first of each that a row has."""


class Math(FileTask):
    """`math:FILE`. Grading needs no file, because the problem contains its answer."""

    name = "math"
    columns = (*_QUESTIONS, *_ANSWERS)

    def read(self, row: Any, place: str) -> Problem:
        if not isinstance(row, dict):
            raise UserError(f"{place}: not an object with a problem and an answer")
        text, answer = (_column(row, names, place) for names in (_QUESTIONS, _ANSWERS))
        return self.problem(text, answer.rpartition("####")[2].strip() or answer)

    def problem(self, text: str, answer: str) -> Problem:
        """A problem of a row. UserError without math-verify, which grades it."""
        require_math_verify()
        return Problem(
            id=f"{self.name}/{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}",
            task=self.name,
            text=f"{text}\n\n{ANSWER_FORM}",
            data={"answer": answer},
            answer_form=ANSWER_FORM,
        )

    def fits(self, data: Mapping[str, Any]) -> bool:
        answer = data.get("answer")
        return isinstance(answer, str) and bool(answer.strip())

    def grade(self, problem: Problem, answer: str) -> Grade:
        """1 if the final result of the answer equals the row's answer, else 0."""
        return Grade(int(is_same(problem.data["answer"], answer, problem.query)), problem.required)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        """One solution: the final result. Two spellings of a number are equal; formulas are compared as text."""
        return [Solution(normal_form(answer, problem.query), written(answer))] if extract(answer) else []


def _column(row: Mapping[str, Any], names: tuple[str, ...], place: str) -> str:
    for value in map(row.get, names):
        if isinstance(value, str | int | float) and not isinstance(value, bool) and _written(value):
            return _written(value)
    has = f"has {', '.join(map(str, row))[:80]}" if row else "is empty"
    raise UserError(f"{place}: {' or '.join(names)} is missing: the row {has}")


def _written(value: Any) -> str:
    """The text of a value, numbers in plain digits: `0.00001` of 1e-05. Empty for NaN and infinity."""
    if isinstance(value, float):
        return format(Decimal(repr(value)), "f") if math.isfinite(value) else ""
    return str(value).strip()


MATH = Math()
"""`math:FILE`: problems and reference answers of a file."""
