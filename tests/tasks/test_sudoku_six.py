"""Sudoku 6×6: each empty cell follows from the clues, so that a puzzle has one solution; the grader is exact."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from orgthink.tasks import task_named
from orgthink.tasks.sudoku_six import PEERS, SIDE, SUDOKU_SIX, UNITS, SudokuSix, faults, full_grid, keeps, render, seen
from orgthink.tasks.task import in_split

SOLUTION = [
    [1, 2, 3, 4, 5, 6],
    [4, 5, 6, 1, 2, 3],
    [2, 3, 1, 5, 6, 4],
    [5, 6, 4, 2, 3, 1],
    [3, 1, 2, 6, 4, 5],
    [6, 4, 5, 3, 1, 2],
]
CLUES = [[0, *SOLUTION[0][1:]], *SOLUTION[1:5], [*SOLUTION[5][:4], 0, 2]]
PROBLEM = SUDOKU_SIX.problem(CLUES)


def changed(*cells: tuple[int, int, int]) -> list[list[int]]:
    grid = [list(row) for row in SOLUTION]
    for i, j, digit in cells:
        grid[i][j] = digit
    return grid


def completions(clues: list[list[int]]) -> list[list[list[int]]]:
    cell = next(((i, j) for i, j in sorted(PEERS) if not clues[i][j]), None)
    if cell is None:
        return [clues]
    found = []
    for digit in {*range(1, 7)} - {*seen(clues, cell)}:
        grid = [list(row) for row in clues]
        grid[cell[0]][cell[1]] = digit
        found += completions(grid)
    return found


def test_units_and_peers():
    assert len(UNITS) == 18 and all(len({*unit}) == 6 for unit in UNITS.values())
    assert (
        UNITS["B"][0] == (1, 0)
        and UNITS["3"][1] == (1, 2)
        and UNITS["C4"] == tuple((i, j) for i in (2, 3) for j in (3, 4, 5))
    )
    assert all(len(peers) == 12 for peers in PEERS.values()) and not faults(SOLUTION)


@pytest.mark.parametrize("task", [SUDOKU_SIX, SudokuSix((12, 12))], ids=["all sizes", "twelve empty cells"])
def test_each_empty_cell_follows_from_the_clues_alone(task: SudokuSix):
    for problem in islice(task.problems("train", 3), 40):
        clues = problem.data["clues"]
        empty = [cell for cell in PEERS if not clues[cell[0]][cell[1]]]
        assert task.empty[0] <= len(empty) <= task.empty[1]
        assert all(len(seen(clues, cell)) == 5 for cell in empty)
        (only,) = completions(clues)
        assert SUDOKU_SIX.grade(problem, render(only)).all_correct


def test_grids_are_shuffled_in_all_ways():
    grids = [full_grid(random.Random(seed)) for seed in range(60)]
    assert not any(map(faults, grids)) and len({tuple(map(tuple, grid)) for grid in grids}) == 60
    assert len({frozenset(grid[0][:3]) for grid in grids}) > SIDE, "digits change places, too, and not only lines"


def test_the_same_puzzles_are_held_out_whatever_their_number_of_empty_cells():
    for task in (SUDOKU_SIX, SudokuSix((6, 6))):
        assert all(in_split(problem.id, "test") for problem in islice(task.problems("test", 0), 20))
    first = [next(task_named("sudoku-six").problems(split, 1)) for split in ("train", "test", "train")]
    assert first[0] == first[2] != first[1] and first[0].text.count("\n") == 7


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        (render(SOLUTION), True),
        (render(SOLUTION)[1:], True),
        ("\n".join(" ".join(map(str, row)) for row in SOLUTION), True),
        (f"The grid:\n```\n{render(SOLUTION)}\n```", True),
        (render(CLUES), False),
        (render(changed((0, 0, 2))), False),
        (render([SOLUTION[1], SOLUTION[0], *SOLUTION[2:]]), False),  # valid, but it moves clues
        (render(SOLUTION[:5]), False),
        (f"{render(SOLUTION)}\n{render(SOLUTION)}", False),
        ("A1234567", False),
        ("", False),
        ("A1234٥6\n" * 6, False),
    ],
)
def test_grades(answer: str, right: bool):
    assert SUDOKU_SIX.grade(PROBLEM, answer).all_correct is right


def test_faults_and_votes():
    assert faults(changed((0, 0, 2))) == ["A", "1", "A1"]
    assert faults(changed((0, 0, 2), (0, 1, 1))) == ["1", "2"], "two cells of a row and a box changed places"
    assert keeps(SOLUTION, CLUES) and not keeps(changed((1, 1, 1)), CLUES)
    spellings = [render(SOLUTION), "\n".join(" ".join(map(str, row)) for row in SOLUTION)]
    assert len({SUDOKU_SIX.solutions(PROBLEM, text)[0].identity for text in spellings}) == 1
    assert SUDOKU_SIX.fits(PROBLEM.data) and not SUDOKU_SIX.fits({"clues": [[1, 2], [2, 1]]})
    assert not any(SUDOKU_SIX.fits({"clues": [[one, *CLUES[0][1:]], *CLUES[1:]]}) for one in (True, 7, -1, "1"))
