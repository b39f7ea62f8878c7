"""Rows in the public schema of LiveCodeBench, of made-up problems, and programs that solve them or do not."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Cases = Sequence[tuple[str, str]]


def packed(cases: Cases, kind: str) -> str:
    """Private tests as the data set packs them."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(listed(cases, kind))))).decode()


def listed(cases: Cases, kind: str) -> list[dict[str, str]]:
    return [{"input": given, "output": right, "testtype": kind} for given, right in cases]


def row(
    key: str, question: str, public: Cases, private: Cases, *, function: str = "", date: str, plain: bool = False
) -> dict[str, str]:
    """A row with all columns, every one of them a text, as the public files have them."""
    kind = "functional" if function else "stdin"
    starter = f"class Solution:\n    def {function}(self, values: List[int]) -> int:\n        " if function else ""
    return {
        "question_title": key,
        "question_content": question,
        "platform": "leetcode" if function else "atcoder",
        "question_id": key,
        "contest_id": f"contest_{key}",
        "contest_date": f"{date}T00:00:00",
        "starter_code": starter,
        "difficulty": "easy",
        "public_test_cases": json.dumps(listed(public, kind)),
        "private_test_cases": json.dumps(listed(private, kind)) if plain else packed(private, kind),
        "metadata": json.dumps({"func_name": function} if function else {}),
    }


ROWS = [
    row("total", "Read n, then n whole numbers in a line. Print their total.",
        [("3\n1 2 3\n", "6\n"), ("1\n-5\n", "-5\n")], [("2\n40 2\n", "42\n"), ("4\n0 0 0 0\n", "0")],
        date="2025-01-11"),
    row("halves", "Read n numbers, one a line after n. Print the half of each on a line of its own.",
        [("2\n1\n4\n", "0.5\n2.0\n")], [("1\n7\n", "3.5\n"), ("3\n2\n-2\n0\n", "1.0\n-1.0\n0.0\n")],
        date="2025-02-08", plain=True),
    row("grid", "Read n. Print an n by n triangle of stars, one more in each line.",
        [("2\n", "*\n**\n")], [("1\n", "*\n"), ("3\n", "*\n**\n***\n")], date="2025-03-01"),
    row("widest", "Return the largest difference of two of the values.",
        [("[3, 1, 8]", "7"), ("[5, 5]", "0")], [("[9, 2, 3]", "7"), ("[-4, 4]", "8")],
        function="widest", date="2025-03-29"),
    row("minmax", "Return the least and the largest of the values as a list.",
        [("[3, 1, 8]", "[1, 8]")], [("[2]", "[2, 2]"), ("[0, -1]", "[-1, 0]")],
        function="minmax", date="2025-04-05", plain=True),
]  # fmt: skip

METHOD = "class Solution:\n    def {}(self, values: List[int]):\n        return {}"
RIGHT = {
    "total": "input()\nprint(sum(map(int, input().split())))",
    "halves": "for _ in range(int(input())):\n    print(int(input()) / 2)",
    "grid": "for i in range(int(input())):\n    print('*' * (i + 1))",
    "widest": METHOD.format("widest", "max(values) - min(values)"),
    "minmax": METHOD.format("minmax", "(min(values), max(values))"),
}
"""Programs that pass all tests."""
PUBLIC_ONLY = {
    "total": "input()\nfound = sum(map(int, input().split()))\nprint(found if found < 40 else 7)",
    "halves": "for _ in range(int(input())):\n    print(abs(int(input())) / 2)",
    "grid": "for i in range(int(input())):\n    print(('*' * (i + 1))[:2])",
    "widest": METHOD.format("widest", "values[-1] - min(values)"),
    "minmax": METHOD.format("minmax", "sorted(values)[:: len(values) - 1]"),
}
"""Programs that pass the public tests, and not all private ones."""
WRONG = {key: METHOD.format(key, 0.25) if "class" in program else "print('no')" for key, program in RIGHT.items()}
"""Programs that fail the first test."""


def fenced(program: str) -> str:
    """An answer with the program."""
    return f"Here it is:\n```python\n{program}\n```\n"


def write_rows(file: Path, rows: Sequence[Mapping[str, Any]] = ROWS) -> Path:
    """The rows as JSON lines."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file
