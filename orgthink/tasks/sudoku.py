"""Sudoku 4×4 after Enigmata's `sudoku2`: a pattern is shuffled, then 4 to 9 cells are emptied, a third each easy,
medium and hard. Any valid grid that keeps the clues is right; several may exist.

`sudoku` makes its puzzles. `sudoku:FILE` reads those of the Enigmata dataset, which section 4.4 of AsyncThink uses:
rows with `task_name` and `meta`, an object or its JSON text, whose `question` is the grid with 0 for an empty cell.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from orgthink.grammar.solution import boxed
from orgthink.record.episode import Grade, Problem
from orgthink.tasks.task import FileTask, Solution, Split, in_split
from orgthink.tasks.written import readings
from orgthink.util.errors import UserError, explained

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
_ENDS = re.compile(r"[\n/;]|[\]\"][ \t]*,|\\\\")
"""Where a row ends: the line, `/`, `;`, the bracket or quote of a list, or `\\\\` in LaTeX."""
MOST_LINES = 2_000
"""Last lines of an answer that are read, which bounds the time for it."""
_AROUND = re.compile(r"\\?[\[\]|│┃║]|\{[lcr|@ ]+\}|\\hline(?![A-Za-z])")
"""Brackets, bars, and the columns and lines of an array of LaTeX."""
_ROWS = {
    side: re.compile(rf"(?:[A-F](?=\d))?[1-{side}](?:[ \t,]*[1-{side}]){{{side - 1}}},?", re.ASCII) for side in (4, 6)
}
"""A row by the side of its grid; a letter may stand before its digits."""
_ENIGMATA = "sudoku2"
"""The dataset's name for puzzles of this size."""
INSTRUCTION = (
    "Solve this 4x4 Sudoku; dots are empty cells. Every row, every column and every 2x2 box must hold each of 1, 2, 3, "
    "4 once."
)
ANSWER_FORM = "The answer is the completed grid: four lines of four digits."


class Sudoku(FileTask):
    """A fifth of the puzzles, by a hash of their clues, is held out for `test`. A file is its own split."""

    columns = ("meta", "task_name")

    def __init__(
        self, file: Path | None = None, name: str = "sudoku", holes: Mapping[str, tuple[int, int]] = HOLES
    ) -> None:
        """`holes` are the fewest and the most empty cells of each level."""
        super().__init__(file)
        self.name, self._holes = name, holes

    def read(self, row: Any, place: str) -> Problem | None:
        with explained(place, ValueError, UserError):
            grid = clues_of(row)
        if grid is None:
            return None
        empty = sum(line.count(0) for line in grid)
        levels = (level for level, (few, many) in HOLES.items() if few <= empty <= many)
        return self.problem(grid, next(levels, "other"))

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        """Puzzles of the three levels in equal shares, in the order of a seeded generator; or the rows of the file."""
        if self._files:
            yield from super().problems(split, seed)
        rng = random.Random(f"{self.name} {split} {seed}")
        while True:
            level = rng.choice(list(self._holes))
            problem = self.problem(_emptied(board(rng), rng.randint(*self._holes[level]), rng), level)
            if in_split(problem.id, split):
                yield problem

    def problem(self, clues: Grid, level: str) -> Problem:
        rows = ["".join(map(str, row)) for row in clues]
        return Problem(
            id=f"{self.name}/{'-'.join(rows)}",
            task=self.name,
            text="\n".join([INSTRUCTION, "", *(" ".join(row).replace("0", ".") for row in rows), "", ANSWER_FORM]),
            instruction=INSTRUCTION,
            data={"clues": clues, "level": level},
            answer_form=ANSWER_FORM,
        )

    def fits(self, data: Mapping[str, Any]) -> bool:
        return _is_grid(data.get("clues"))

    def grade(self, problem: Problem, answer: str) -> Grade:
        """1 if the answer is a valid grid that keeps the clues, else 0: no credit for part of it."""
        grid = read(answer)
        right = grid is not None and is_valid(grid) and keeps(grid, problem.data["clues"])
        return Grade(correct=int(right), required=problem.required)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        grid, text = read(answer), answer.strip()
        return [Solution(text if grid is None else tuple(map(tuple, grid)), text)] if text else []


def clues_of(row: Any) -> Grid | None:
    """The puzzle of a row; `None` for one of another task. ValueError for an invalid puzzle."""
    if not isinstance(row, dict) or row.get("task_name", _ENIGMATA) != _ENIGMATA:
        return None
    try:
        meta = json.loads(row["meta"]) if isinstance(row.get("meta"), str) else row["meta"]
        grid = [[int(cell) for cell in line] for line in meta["question"]]
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise ValueError("it has no grid in meta.question") from None
    if not _is_grid(grid):
        raise ValueError("meta.question is no 4x4 grid")
    return grid


def _is_grid(found: Any) -> bool:
    """Whether it is four rows of four digits from 0 to 4."""
    rows = found if isinstance(found, list) and all(isinstance(row, list) for row in found) else []
    cells = [cell for row in rows for cell in row]
    return [len(row) for row in rows] == [4] * 4 and all(type(cell) is int and 0 <= cell <= 4 for cell in cells)


def read(answer: str, side: int = 4) -> Grid | None:
    """The grid of an answer, of its last code fence or `\\boxed{}`: exactly four of its lines are rows of four digits.
    `side` is 4, or 6 for six rows of six digits.

    Spaces, commas and bars may stand between digits, and a label before them; a list of lists is read too. Lines that
    are no row are passed over. `None` if there are more rows or fewer, such as two grids.
    """
    fenced = _FENCE.findall(answer)
    text = fenced[-1] if fenced else answer
    for part in (*boxed(text)[-1:], text):  # each row may be boxed by itself, so that the last box holds no grid
        rows = [row for line in _ENDS.split(part)[-MOST_LINES:] if (row := _row(line, side)) is not None]
        if len(rows) == side:
            return rows
    return None


def _row(line: str, side: int) -> list[int] | None:
    for text in readings(_AROUND.sub(" ", line).strip()):
        if _ROWS[side].fullmatch(text):
            return [int(digit) for digit in re.findall(r"[1-6]", text)]
    return None


def is_valid(grid: Grid) -> bool:
    """Every row, column and box holds each of 1, 2, 3, 4."""
    return all({grid[i][j] for i, j in unit} == {1, 2, 3, 4} for unit in UNITS)


def keeps(grid: Grid, clues: Grid) -> bool:
    """Whether a grid has every clue in its place."""
    return all(clues[i][j] in (0, grid[i][j]) for i in range(4) for j in range(4))


def board(rng: random.Random) -> Grid:
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
"""4 × 4 sudoku; `sudoku:FILE` reads other puzzles."""
