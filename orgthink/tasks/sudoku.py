"""Sudoku 4×4 after Enigmata's `sudoku2`: a pattern is shuffled, then 4 to 9 cells are emptied, a third each easy,
medium and hard. Any valid grid that keeps the clues is right; several may exist.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from orgthink.episode import Grade, Problem
from orgthink.tasks.task import Solution, Split, in_split

HOLES = {"easy": (4, 5), "medium": (6, 7), "hard": (8, 9)}
"""Fewest and most empty cells of each level."""

Grid = list[list[int]]
"""Four rows of four digits; 0 is an empty cell."""

UNITS = tuple(
    [[(i, j) for j in range(4)] for i in range(4)]
    + [[(j, i) for j in range(4)] for i in range(4)]
    + [[(2 * (i // 2) + j // 2, 2 * (i % 2) + j % 2) for j in range(4)] for i in range(4)]
)
"""Cells (row, column) of the rows, the columns and the boxes: each holds 1 to 4 once."""

_FENCE = re.compile(r"```\w*\n(.*?)\n?```", re.DOTALL | re.ASCII)
_ROW = re.compile(r"[1-4](?:[ \t,]*[1-4]){3},?", re.ASCII)


class Sudoku:
    """A fifth of the puzzles, by a hash of their clues, is held out for `test`."""

    name = "sudoku"

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        """Puzzles of the three levels in equal shares, in the order of a seeded generator."""
        rng = random.Random(f"{self.name} {split} {seed}")
        while True:
            level = rng.choice(list(HOLES))
            problem = self.problem(_emptied(_board(rng), rng.randint(*HOLES[level]), rng), level)
            if in_split(problem.id, split):
                yield problem

    def problem(self, clues: Grid, level: str) -> Problem:
        rows = ["".join(map(str, row)) for row in clues]
        return Problem(
            id=f"{self.name}/{'-'.join(rows)}",
            task=self.name,
            text=(
                "Solve this 4x4 Sudoku; dots are empty cells. Every row, every column and every 2x2 box must hold "
                "each of 1, 2, 3, 4 once.\n\n"
                + "\n".join(" ".join(row).replace("0", ".") for row in rows)
                + "\n\nWrite only the completed grid in the answer: four lines of four digits."
            ),
            data={"clues": clues, "level": level},
        )

    def grade(self, problem: Problem, answer: str) -> Grade:
        """1 if the answer is a valid grid that keeps the clues, else 0: no credit for part of it."""
        grid = read(answer)
        right = grid is not None and is_valid(grid) and _keeps(grid, problem.data["clues"])
        return Grade(correct=int(right), required=problem.required)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        grid, text = read(answer), answer.strip()
        return [Solution(text if grid is None else tuple(map(tuple, grid)), text)] if text else []


def render(grid: Grid) -> str:
    """`1 2 3 4 / 3 4 1 2 / …`: a grid on one line."""
    return " / ".join(" ".join(map(str, row)) for row in grid)


def read(answer: str) -> Grid | None:
    """The grid of an answer, in a code fence or plain; `None` for any other text, such as two grids.

    Rows end at a line or a `/`; spaces and commas may stand between the digits.
    """
    text = answer.strip()
    fenced = _FENCE.fullmatch(text)
    rows = [row.strip() for row in re.split(r"[\n/]", fenced[1] if fenced else text)]
    rows = [row for row in rows if row]
    if len(rows) != 4 or not all(_ROW.fullmatch(row) for row in rows):
        return None
    return [[int(digit) for digit in re.findall(r"[1-4]", row)] for row in rows]


def is_valid(grid: Grid) -> bool:
    """Every row, column and box holds each of 1, 2, 3, 4."""
    return all({grid[i][j] for i, j in unit} == {1, 2, 3, 4} for unit in UNITS)


def _keeps(grid: Grid, clues: Grid) -> bool:
    return all(clues[i][j] in (0, grid[i][j]) for i in range(4) for j in range(4))


def _board(rng: random.Random) -> Grid:
    """A full grid: one pattern with its bands, lines and digits shuffled."""
    digits = rng.sample(range(1, 5), 4)
    rows, columns = _lines(rng), _lines(rng)
    return [[digits[(2 * (i % 2) + i // 2 + j) % 4] for j in columns] for i in rows]


def _lines(rng: random.Random) -> list[int]:
    """Rows or columns: the bands change places, and the lines within each."""
    return [2 * band + line for band in rng.sample(range(2), 2) for line in rng.sample(range(2), 2)]


def _emptied(board: Grid, holes: int, rng: random.Random) -> Grid:
    empty = set(rng.sample(range(16), holes))
    return [[0 if 4 * i + j in empty else board[i][j] for j in range(4)] for i in range(4)]


SUDOKU = Sudoku()
