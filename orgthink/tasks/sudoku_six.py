"""Sudoku 6×6 for small language models. Each empty cell follows from the clues alone, so a grid has one solution.

A102030      rows A to F, columns 1 to 6, boxes of two rows and three columns; 0 is an empty cell
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from orgthink.record.episode import Grade, Problem
from orgthink.tasks.sudoku import Grid, read
from orgthink.tasks.task import Solution, Split, Task, in_split

Cell = tuple[int, int]
"""Row and column, from 0."""

ROWS = "ABCDEF"
SIDE = len(ROWS)
UNITS: Mapping[str, tuple[Cell, ...]] = {
    **{ROWS[i]: tuple((i, j) for j in range(SIDE)) for i in range(SIDE)},
    **{str(j + 1): tuple((i, j) for i in range(SIDE)) for j in range(SIDE)},
    **{
        f"{ROWS[i]}{j + 1}": tuple((i + k, j + m) for k in (0, 1) for m in (0, 1, 2)) for i in (0, 2, 4) for j in (0, 3)
    },
}
"""Cells of the rows `A` to `F`, the columns `1` to `6`, and the boxes, by the name of their first cell."""
PEERS = {
    cell: tuple(dict.fromkeys(one for unit in UNITS.values() if cell in unit for one in unit if one != cell))
    for cell in (cell for row in ROWS for cell in UNITS[row])
}
"""The other cells of a cell's row, then those of its column, then those of its box."""

EMPTY = (6, 12)
"""Fewest and most empty cells. Each grid can have 12 that follow from its clues, and some no more than 13."""
INSTRUCTION = "Fill in the zeros: each row, each column and each 2x3 box holds 1 to 6 once."
ANSWER_FORM = "The answer is six rows."


class SudokuSix(Task):
    """A fifth of the puzzles, by a hash of their clues, is held out for `test`."""

    name = "sudoku-six"

    def __init__(self, empty: tuple[int, int] = EMPTY) -> None:
        """`empty`: the fewest and the most empty cells. Whatever they are, the same puzzles are held out."""
        self.empty = empty

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        """New puzzles without end, each number of empty cells equally likely."""
        rng = random.Random(f"{self.name} {self.empty} {split} {seed}")
        while True:
            problem = self.problem(emptied(full_grid(rng), rng.randint(*self.empty), rng))
            if in_split(problem.id, split):
                yield problem

    def problem(self, grid: Grid) -> Problem:
        return Problem(
            id=f"{self.name}/{'-'.join(''.join(map(str, row)) for row in grid)}",
            task=self.name,
            text=f"{INSTRUCTION}\n{render(grid)}\n{ANSWER_FORM}",
            instruction=INSTRUCTION,
            data={"clues": grid},
            answer_form=ANSWER_FORM,
        )

    def fits(self, data: Mapping[str, Any]) -> bool:
        grid = data.get("clues")
        rows = grid if isinstance(grid, list) and all(isinstance(row, list) for row in grid) else []
        shape = [len(row) for row in rows] == [SIDE] * SIDE
        return shape and all(type(digit) is int and 0 <= digit <= SIDE for row in rows for digit in row)

    def grade(self, problem: Problem, answer: str) -> Grade:
        """1 if the answer is a valid grid that keeps the clues, else 0."""
        grid = read(answer, SIDE)
        right = grid is not None and not faults(grid) and keeps(grid, problem.data["clues"])
        return Grade(int(right), problem.required)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        grid, text = read(answer, SIDE), answer.strip()
        return [Solution(text if grid is None else tuple(map(tuple, grid)), text)] if text else []


def render(grid: Grid) -> str:
    """A grid as text."""
    return "\n".join(ROWS[i] + "".join(map(str, row)) for i, row in enumerate(grid))


def faults(grid: Grid) -> list[str]:
    """Names of the units without all digits."""
    return [name for name, unit in UNITS.items() if len({grid[i][j] for i, j in unit} - {0}) < SIDE]


def keeps(grid: Grid, clues: Grid) -> bool:
    """Whether a grid has every clue in its place."""
    return all(clues[i][j] in (0, grid[i][j]) for i, j in PEERS)


def full_grid(rng: random.Random) -> Grid:
    """One pattern with its digits, its bands of rows and columns, and the lines of each band shuffled."""
    digits = rng.sample(range(1, SIDE + 1), SIDE)
    rows, columns = (_shuffled(size, rng) for size in (2, 3))
    return [[digits[(3 * (i % 2) + i // 2 + j) % SIDE] for j in columns] for i in rows]


def _shuffled(size: int, rng: random.Random) -> list[int]:
    """Rows or columns: their bands of `size` lines change places, and the lines within each."""
    bands = rng.sample(range(SIDE // size), SIDE // size)
    return [size * band + line for band in bands for line in rng.sample(range(size), size)]


def emptied(grid: Grid, empty: int, rng: random.Random) -> Grid:
    """The grid with so many empty cells, or fewer if no other cell can be emptied: the clues in the row, the column and
    the box of each hold all digits but its own."""
    found = [list(row) for row in grid]
    for i, j in rng.sample(list(PEERS), len(PEERS)):
        if empty == 0:
            break
        digit, found[i][j] = found[i][j], 0
        if all(found[r][c] or len(seen(found, (r, c))) == SIDE - 1 for r, c in ((i, j), *PEERS[i, j])):
            empty -= 1
        else:
            found[i][j] = digit
    return found


def seen(grid: Grid, cell: Cell) -> list[int]:
    """The digits in the row of a cell, then further ones in its column, then in its box."""
    return [digit for digit in dict.fromkeys(grid[i][j] for i, j in PEERS[cell]) if digit]


SUDOKU_SIX = SudokuSix()
"""6 × 6 sudoku whose empty cells each follow from the clues."""
