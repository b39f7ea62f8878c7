"""Rows made here in the columns of public benchmarks, and how a model may answer them.

The questions and answers are of this project; only names, orders and types of the columns are those of the data sets.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def _math(*pairs: tuple[str, Any], **names: Any) -> list[Row]:
    """Rows with a problem and its answer; `names` maps columns to these or to a constant."""
    values = [{"problem": problem, "answer": answer, "number": i} for i, (problem, answer) in enumerate(pairs, 1)]
    return [{name: row.get(of, of) for name, of in names.items()} for row in values]


WHOLE = (
    ("A square has area $49$. Find three times its side.", 21),
    ("Find the remainder when $3^{5}$ is divided by $100$.", 43),
    ("How many two-digit numbers are divisible by $9$?", 10),
    ("Let $ab=70$ for the primes' product $2\\cdot5\\cdot7$. Find $ab$.", 70),
)
TEXTS = tuple((problem, f"{answer:03d}") for problem, answer in WHOLE)
FLOATS = tuple((problem, float(answer)) for problem, answer in WHOLE)
FORMULAS = (
    ("What is the length of the diagonal of a unit square?", "\\sqrt{2}"),
    ("Solve $2x^2 = 9x - 4$ for $x$.", "\\frac{1}{2}, 4"),
    ("Give the area of a circle of radius $3$.", "9\\pi"),
    ("Which point of $y=x^2$ has the slope $6$?", "(3,9)"),
)
GPQA_QUESTIONS = [
    (
        "A photon of 12 eV frees an electron whose work function is 2 eV. Its energy is",
        "10 eV",
        "5 eV",
        "14 eV",
        "24 eV",
    ),
    ("How many stereocentres has 2-butanol?", "1", "0", "2", "4"),
    ("Which force holds a nucleus together?", "strong", "weak", "electric", "gravity"),
]


def _gpqa() -> list[Row]:
    """With some of the many columns around."""
    names = ("Question", "Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
    return [
        {"Pre-Revision Question": f"{row[0]} (draft)", **dict(zip(names, row, strict=True))}
        | {
            "Explanation": "None, really.\nOn two lines, with a comma.",
            "Record ID": f"rec{i}",
            "High-level domain": "Physics",
        }
        for i, row in enumerate(GPQA_QUESTIONS)
    ]


def _mmlu_pro() -> list[Row]:
    rows = []
    for i, category in enumerate(("math", "math", "law", "physics", "math")):
        options = [f"{7 * i + j} points" for j in range(10 if i else 4)]
        right = (3 * i + 1) % len(options)
        rows.append(
            {"question_id": 70 + i, "question": f"How many points has case {i} of {category}?", "options": options}
            | {"answer": "ABCDEFGHIJ"[right], "answer_index": right, "cot_content": "", "category": category}
            | {"src": "made-here"}
        )
    return rows


CLUES = [
    [[1, 0, 0, 4], [0, 4, 1, 0], [2, 0, 4, 0], [0, 0, 0, 1]],
    [[0, 2, 3, 4], [3, 4, 1, 2], [2, 1, 4, 3], [4, 3, 2, 0]],
    [[1, 2, 3, 4], [3, 4, 1, 2], [2, 1, 4, 3], [4, 3, 0, 0]],
]
SOLVED = "1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1"
"""Completes all three."""


def _enigmata() -> list[Row]:
    rows = [
        {"task_name": "sudoku2", "prompt": "a puzzle", "answer": "", "meta": json.dumps({"question": clues})}
        for clues in CLUES
    ]
    return [*rows, {"task_name": "maze", "prompt": "another", "answer": "", "meta": "{}"}, rows[0]]


NUMBERS = [([2, 3, 7], 42, "2 * 3 * 7"), ([5, 5, 1, 4], 15, "5 + 5 + 1 + 4"), ([44, 19, 35], 98, "44 + 19 + 35")]


@dataclass(frozen=True)
class Fixture:
    """A benchmark's rows, and answers to them."""

    rows: list[Row]
    """In the public columns."""
    file: str
    """Path in a snapshot of the data set."""
    right: dict[str, str]
    """Part of a question → a right answer, as a model may write it."""
    wrong: str
    """A wrong answer to all of them, in the right form."""
    prose: str = "I am not sure, but it has to do with 21, 43 and 10 eV."
    """An answer without a form."""
    dataset: str = ""
    """Whose columns these are."""
    others: dict[str, list[Row]] = field(default_factory=dict)
    """The same rows in the columns of other data sets."""


MARKS = ("\\boxed{%s}", "So it is $\\boxed{%s}$.", "Sure.\nANSWER: %s", "%s")


def _mathematical(file: str, dataset: str, pairs: Any, names: dict[str, str], **others: list[Row]) -> Fixture:
    right = {problem: MARKS[i % 4] % answer for i, (problem, answer) in enumerate(pairs)}
    return Fixture(_math(*pairs, **names), file, right, "\\boxed{5}", dataset=dataset, others=others)


FIXTURES = {
    "aime24": _mathematical(
        "data/train-00000-of-00001.parquet",
        "HuggingFaceH4/aime_2024",
        TEXTS,
        {"id": "number", "problem": "problem", "solution": "", "answer": "answer", "url": "", "year": "2024"},
        other=_math(*WHOLE, ID="number", Problem="problem", Solution="", Answer="answer"),
    ),
    "aime25": _mathematical(
        "test.jsonl",
        "math-ai/aime25",
        TEXTS,
        {"problem": "problem", "answer": "answer", "id": "number"},
        other=_math(*WHOLE, problem_idx="number", problem="problem", answer="answer", problem_type="x"),
    ),
    "aime26": _mathematical(
        "data/test-00000-of-00001.parquet",
        "math-ai/aime26",
        TEXTS,
        {"id": "number", "problem": "problem", "answer": "answer"},
    ),
    "amc23": _mathematical(
        "data/test-00000-of-00001.parquet",
        "math-ai/amc23",
        FLOATS,
        {"id": "number", "question": "problem", "answer": "answer", "url": ""},
    ),
    "amc": _mathematical(
        "data/train-00000-of-00001.parquet",
        "AI-MO/aimo-validation-amc",
        FLOATS,
        {"id": "number", "problem": "problem", "answer": "answer", "url": ""},
    ),
    "hmmt-feb25": _mathematical(
        "data/train-00000-of-00001.parquet",
        "MathArena/hmmt_feb_2025",
        FORMULAS,
        {"problem_idx": "number", "answer": "answer", "problem": "problem", "problem_type": "x"},
    ),
    "hmmt-nov25": _mathematical(
        "data/train-00000-of-00001.parquet",
        "MathArena/hmmt_nov_2025",
        FORMULAS,
        {"problem_idx": "number", "problem": "problem", "answer": "answer", "problem_type": "x"},
    ),
    "beyond-aime": _mathematical(
        "data/test-00000-of-00001.parquet",
        "ByteDance-Seed/BeyondAIME",
        WHOLE,
        {"problem": "problem", "answer": "answer"},
    ),
    "math-500": _mathematical(
        "test.jsonl",
        "HuggingFaceH4/MATH-500",
        FORMULAS,
        {
            **{"problem": "problem", "solution": "", "answer": "answer", "subject": "Algebra", "level": "number"},
            "unique_id": "test/algebra/1.json",
        },
    ),
    "gpqa-diamond": Fixture(
        _gpqa(), "gpqa_diamond.csv", {}, "", "The energy is what is left: 10 eV.", dataset="Idavidrein/gpqa"
    ),
    "mmlu-pro": Fixture(
        _mmlu_pro(), "data/test-00000-of-00001.parquet", {}, "", "A good question.", dataset="TIGER-Lab/MMLU-Pro"
    ),
    "enigmata-sudoku": Fixture(
        _enigmata(),
        "data/train-00000-of-00001.parquet",
        {"Sudoku": SOLVED},
        "1 2 3 4\n1 2 3 4\n1 2 3 4\n1 2 3 4",
        dataset="BytedTsinghua-SIA/Enigmata-Data",
    ),
    "countdown-3to4": Fixture(
        [{"target": target, "nums": numbers} for numbers, target, _ in NUMBERS],
        "data/train-00000-of-00001.parquet",
        {f"Numbers: {', '.join(map(str, numbers))}. Target: {target}.": text for numbers, target, text in NUMBERS},
        "1 + 2 + 3",
        "The numbers do it.",
        dataset="Jiayi-Pan/Countdown-Tasks-3to4",
    ),
}
"""By the name of the benchmark."""


def write(rows: list[Row], file: Path) -> Path:
    """The rows in the form of the file's ending."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".csv":
        with file.open("w", encoding="utf-8", newline="") as out:
            table = csv.DictWriter(out, list(rows[0]))
            table.writeheader()
            table.writerows(rows)
    elif file.suffix == ".jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        import pyarrow
        from pyarrow import parquet

        table = pyarrow.Table.from_pylist(rows)
        if file.suffix == ".parquet":
            parquet.write_table(table, file)
        else:
            with pyarrow.ipc.new_stream(str(file), table.schema) as out:
                out.write_table(table)
    return file
