"""`sudoku-sparse`: six clues, asked for as any sudoku is."""

from __future__ import annotations

from itertools import islice

from orgthink_pocket.base.style import terse

from orgthink.tasks import task_named


def test_ten_cells_are_empty_and_the_question_is_that_of_sudoku() -> None:
    task = task_named("sudoku-sparse")
    for problem in islice(task.problems("train", 0), 20):
        assert sum(row.count(0) for row in problem.data["clues"]) == 10
        assert problem.task == "sudoku-sparse" and terse(problem).startswith("sudoku ")
        assert task.grade(problem, "1 2 3 4").correct == 0
    assert sum(row.count(0) for row in next(task_named("sudoku").problems("train", 0)).data["clues"]) < 10
