"""Benchmarks of mathematics with a short final answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orgthink.tasks.math import ANSWER_FORM, MATH
from orgthink.tasks.math_verifier import require_math_verify
from orgthink_arena.tasks.bench.benchmark import AnswerTemplate, Benchmark, BenchmarkRow, HubDataset

MATH_COLUMNS = {
    "problem": ("problem", "question", "prompt"),
    "answer": ("answer", "expected_answer", "final_answer"),
}
"""Columns of public files."""

BOXED = AnswerTemplate("boxed", ANSWER_FORM)
"""Asks for a boxed answer."""


def read_math(values: Mapping[str, Any]) -> BenchmarkRow:
    """A row with a problem and its answer: a text, or a number such as 142.0. UserError where no answer to it could be
    graded."""
    require_math_verify()
    return BenchmarkRow(text_of(values["problem"], "problem"), {"answer": text_of(values["answer"], "answer")})


def text_of(value: Any, name: str) -> str:
    """A value as text, whole numbers without a fraction. ValueError for an empty one, or one that is no text."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float) or not str(value).strip():
        raise ValueError(f"it has no {name}")
    return str(value).strip()


def _mathematics(name: str, *datasets: HubDataset, rows: int, k: int = 8, temperature: float = 1.0) -> Benchmark:
    return Benchmark(
        name=name,
        datasets=datasets,
        columns=MATH_COLUMNS,
        read=read_math,
        template=BOXED,
        grader=MATH,
        rows=rows,
        k=k,
        temperature=temperature,
    )


# mean@8 at temperature 1.0 is the convention of ParaManager (§4.4), avg@32 at 0.6 that of MarsRL.
AIME24 = _mathematics(
    "aime24",
    HubDataset("HuggingFaceH4/aime_2024", "train"),
    HubDataset("Maxwell-Jia/AIME_2024", "train"),
    rows=30,
)
"""AIME I and II of 2024, 30 problems with whole numbers as answers."""
AIME25 = _mathematics(
    "aime25",
    HubDataset("math-ai/aime25", "test"),
    HubDataset("yentinglin/aime_2025", "train"),
    HubDataset("MathArena/aime_2025", "train"),
    rows=30,
)
"""AIME I and II of 2025, 30 problems with whole numbers as answers."""
AIME26 = _mathematics(
    "aime26",
    HubDataset("math-ai/aime26", "test"),
    HubDataset("MathArena/aime_2026", "train"),
    rows=30,
)
"""AIME I and II of 2026, 30 problems with whole numbers as answers."""
AMC23 = _mathematics(
    "amc23",
    HubDataset("math-ai/amc23", "test"),
    rows=40,
)
"""AMC 12 of 2023, the 40 problems with whole numbers as answers."""
AMC = _mathematics(
    "amc",
    HubDataset("AI-MO/aimo-validation-amc", "train"),
    rows=83,
)
"""AMC 12 of 2022 and 2023, the 83 problems that ParaManager's scores tell of."""
HMMT_FEB25 = _mathematics(
    "hmmt-feb25",
    HubDataset("MathArena/hmmt_feb_2025", "train"),
    rows=30,
)
"""HMMT of February 2025, 30 problems whose answers are formulas."""
HMMT_NOV25 = _mathematics(
    "hmmt-nov25",
    HubDataset("MathArena/hmmt_nov_2025", "train"),
    rows=30,
)
"""HMMT of November 2025, 30 problems whose answers are formulas."""
BEYOND_AIME = _mathematics(
    "beyond-aime",
    HubDataset("ByteDance-Seed/BeyondAIME", "test"),
    rows=100,
    k=32,
    temperature=0.6,
)
"""BeyondAIME, 100 problems harder than AIME's with whole numbers as answers."""
MATH_500 = _mathematics(
    "math-500",
    HubDataset("HuggingFaceH4/MATH-500", "test"),
    rows=500,
    k=1,
    temperature=0.6,
)
"""MATH-500, 500 problems of the test set of MATH."""
