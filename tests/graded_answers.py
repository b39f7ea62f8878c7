"""Answers as models write them, each with the grade that it deserves: `tests/data/graded_answers.jsonl`.

The file has three kinds of lines. `{"rule": …, "says": …}` explains a decision. A problem is an object with its `kind`;
the answers to it follow: `[answer, right solutions in it, rule, verdicts]`. The verdicts are those of the graders of
other projects, in the order of `OTHERS[kind]`: 1 accepts, 0 refuses.
`python tests/other_graders.py --write` computes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orgthink.record.episode import Grade, Problem
from orgthink.tasks import Task
from orgthink.tasks.countdown import COUNTDOWN
from orgthink.tasks.math import MATH
from orgthink.tasks.rows import CHOICE
from orgthink.tasks.sudoku import SUDOKU
from orgthink.tools.code_task import CODE

FILE = Path(__file__).parent / "data" / "graded_answers.jsonl"

OTHERS = {
    "mathematics": ("math-verify", "lm-eval minerva_math", "lm-eval gsm8k", "Inspect math", "Inspect match"),
    "choice": ("lm-eval mmlu_pro", "lm-eval mmlu_flan_cot", "Inspect choice", "Inspect match"),
    "countdown": ("math-verify", "lm-eval gsm8k", "Inspect math", "Inspect match"),
    "sudoku": ("Inspect match",),
    "code": ("lm-eval mbpp_instruct",),
}
"""Graders of other projects by kind. Those of countdown compare the value of the last expression with the target."""

TASKS: dict[str, Task] = {
    "mathematics": MATH, "choice": CHOICE, "countdown": COUNTDOWN, "sudoku": SUDOKU, "code": CODE,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class GradedAnswer:
    """An answer with its grade."""

    stated: dict[str, Any]
    """The problem as the file has it."""
    text: str
    """The answer."""
    correct: int
    """Right solutions in it."""
    rule: str
    """Name of the rule that decides."""
    others: str
    """Verdicts of other graders."""

    @property
    def kind(self) -> str:
        return self.stated["kind"]

    @property
    def required(self) -> int:
        return self.stated.get("required", 1)

    @property
    def right(self) -> bool:
        return self.correct == self.required

    def verdicts(self) -> dict[str, bool]:
        """Whether each other grader accepts it."""
        return {name: verdict == "1" for name, verdict in zip(OTHERS[self.kind], self.others, strict=True)}

    def problem(self) -> Problem:
        """The problem, as its task makes it."""
        stated = self.stated
        match stated["kind"]:
            case "mathematics":
                return MATH.problem(stated["question"], stated["right"])
            case "choice":
                return CHOICE.problem(stated["question"], stated["right"], stated)
            case "countdown":
                return COUNTDOWN.problem(stated["numbers"], stated["target"], stated["required"])
            case "sudoku":
                return SUDOKU.problem([[int(cell) for cell in row] for row in stated["clues"]], "other")
            case _:
                return CODE.problem(stated["question"], "in the tests", stated)

    def grade(self) -> Grade:
        """What the task of its problem says."""
        return TASKS[self.kind].grade(self.problem(), self.text)


def lines() -> list[Any]:
    """The lines of the file."""
    return [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def rules() -> dict[str, str]:
    """The rules by name, each in one sentence."""
    return {line["rule"]: line["says"] for line in lines() if isinstance(line, dict) and "rule" in line}


def graded_answers() -> Iterator[GradedAnswer]:
    """All answers of the file."""
    stated: dict[str, Any] = {}
    for line in lines():
        if isinstance(line, dict):
            stated = line
        else:
            yield GradedAnswer(stated, *line)
