"""Benchmarks of puzzles that public data sets hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orgthink.record.episode import Grade, Problem
from orgthink.tasks.countdown import read_expression
from orgthink.tasks.expression import Expression
from orgthink.tasks.sudoku import ANSWER_FORM, INSTRUCTION, SUDOKU, clues_of
from orgthink.tasks.task import Solution
from orgthink.tasks.written import pieces
from orgthink_arena.tasks.bench.benchmark import AnswerTemplate, Benchmark, BenchmarkRow, HubDataset

GRID = AnswerTemplate("grid", ANSWER_FORM, INSTRUCTION)
"""Asks for a completed grid."""
EQUATION = AnswerTemplate(
    "equation",
    "The answer is the expression alone.",
    "Make the target from the numbers by + - * / and parentheses. Use every number exactly once.",
)
"""Asks for one expression."""


def read_enigmata(values: Mapping[str, Any]) -> BenchmarkRow | None:
    """A 4×4 puzzle of the Enigmata data set; `None` for a row of another of its tasks."""
    clues = clues_of({name: value for name, value in values.items() if value is not None})
    if clues is None:
        return None
    rows = ["".join(map(str, row)) for row in clues]
    return BenchmarkRow("\n".join(" ".join(row).replace("0", ".") for row in rows), {"clues": clues}, "-".join(rows))


def read_countdown(values: Mapping[str, Any]) -> BenchmarkRow:
    """Three or four numbers, which may repeat, and their target."""
    numbers, target = values["numbers"], values["target"]
    whole = isinstance(numbers, list) and all(isinstance(each, int) and each >= 0 for each in [*numbers, target])
    if not whole or len(numbers) < 2:
        raise ValueError("nums and target are no whole numbers")
    question = f"Numbers: {', '.join(map(str, numbers))}. Target: {target}."
    key = f"{'-'.join(map(str, numbers))}={target}"
    return BenchmarkRow(question, {"numbers": numbers, "target": target}, key)


class EquationGrader:
    """The last expression of an answer is right if it has the value of the target and uses each number exactly once."""

    def grade(self, problem: Problem, answer: str) -> Grade:
        wanted = problem.data["target"], sorted(problem.data["numbers"])
        right = [(one.value, list(one.numbers)) == wanted for _, one in _last(answer)]
        return Grade(int(right == [True]), problem.required)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        return [Solution((one.key, one.value), text) for text, one in _last(answer)]


def _last(answer: str) -> list[tuple[str, Expression]]:
    """The last expression in an answer, and how it is written."""
    return [one for piece in pieces(answer) if (one := read_expression(piece)) is not None][-1:]


ENIGMATA_SUDOKU = Benchmark(
    name="enigmata-sudoku",
    datasets=(HubDataset("BytedTsinghua-SIA/Enigmata-Data", "train", files=("*",)),),
    columns={"meta": ("meta",), "task_name": ("task_name", "")},
    read=read_enigmata,
    template=GRID,
    grader=SUDOKU,
    rows=400,
    subset=400,
)
"""4x4 puzzles of the Enigmata data set; by convention 400 (§4.4 of AsyncThink)."""
COUNTDOWN_3TO4 = Benchmark(
    name="countdown-3to4",
    datasets=(HubDataset("Jiayi-Pan/Countdown-Tasks-3to4", "train", span=(327_680, 328_704)),),
    columns={"numbers": ("nums", "numbers"), "target": ("target",)},
    read=read_countdown,
    template=EQUATION,
    grader=EquationGrader(),
    rows=1_024,
)
"""Countdown with three or four numbers as TinyZero tests it, each used exactly once."""
