"""Sudoku lessons: empty cells in the order of reading, each with the digits of its row, column and box.

    cell 1 2 row 1 3 column 4 box 1 = 2 ; cell 1 4 row 1 2 3 column box 3 ? ; …

A cell with one candidate is filled, others are passed over (`?`) until the next round. If a round fills nothing, the
first cell takes the smallest digit that some completed grid has: the only step that its line does not decide.
"""

from __future__ import annotations

from collections.abc import Sequence

from orgthink.grammar.actions import THOUGHT
from orgthink.record.episode import Problem
from orgthink.tasks.sudoku import Grid
from orgthink_pocket.base.family import Family, Thinking
from orgthink_pocket.tasks.sudoku import render

BOXES = [(i, j) for i in (0, 2) for j in (0, 2)]
"""Upper left cells of the boxes."""
Cell = tuple[int, int]
"""Row and column, from 0."""


def box(cell: Cell) -> int:
    """The box of a cell, from 0."""
    return 2 * (cell[0] // 2) + cell[1] // 2


def digits_around(grid: Grid, cell: Cell) -> tuple[list[int], list[int], list[int]]:
    """The digits of the row, the column and the box of a cell."""
    i, j = cell
    top, left = BOXES[box(cell)]
    boxed = [grid[r][c] for r in (top, top + 1) for c in (left, left + 1)]
    return [d for d in grid[i] if d], [row[j] for row in grid if row[j]], [d for d in boxed if d]


def visited(grid: Grid, cell: Cell) -> tuple[str, set[int]]:
    """A line about an empty cell without its end, and the candidates of the cell."""
    units = digits_around(grid, cell)
    named = (" ".join([name, *map(str, unit)]) for name, unit in zip(("row", "column", "box"), units, strict=True))
    return f"cell {cell[0] + 1} {cell[1] + 1} {' '.join(named)}", {1, 2, 3, 4} - {d for unit in units for d in unit}


def forced(grid: Grid, cells: Sequence[Cell]) -> list[str]:
    """Fill the cells with one candidate, in rounds until none is left; returns the lines."""
    lines: list[str] = []
    filled = True
    while filled:
        filled = False
        for cell in [cell for cell in cells if not grid[cell[0]][cell[1]]]:
            line, candidates = visited(grid, cell)
            if len(candidates) == 1:
                (grid[cell[0]][cell[1]],) = candidates
                filled = True
                lines.append(f"{line} = {grid[cell[0]][cell[1]]} ;")
            else:
                lines.append(f"{line} ? ;")
    return lines


def completed(grid: Grid) -> list[str]:
    """Fill all cells; returns the lines. ValueError if no grid keeps these clues."""
    cells = [(i, j) for i in range(4) for j in range(4)]
    lines: list[str] = []
    while True:
        lines += forced(grid, cells)
        cell = next(((i, j) for i, j in cells if not grid[i][j]), None)
        if cell is None:
            return lines
        line, candidates = visited(grid, cell)
        grid[cell[0]][cell[1]] = next(digit for digit in sorted(candidates) if _possible(_filled(grid, cell, digit)))
        lines.append(f"{line} = {grid[cell[0]][cell[1]]} ;")


def _possible(grid: Grid) -> bool:
    """Whether some completed grid has these digits."""
    cell = next(((i, j) for i in range(4) for j in range(4) if not grid[i][j]), None)
    return cell is None or any(_possible(_filled(grid, cell, digit)) for digit in visited(grid, cell)[1])


def _filled(grid: Grid, cell: Cell, digit: int) -> Grid:
    return [[digit if (i, j) == cell else grid[i][j] for j in range(4)] for i in range(4)]


def grid_of(work: Thinking) -> Grid:
    """The clues with what was found."""
    grid = [list(row) for row in work.problem.data["clues"]]
    for cell, digit in work.results:
        i, j = map(int, cell.split())
        grid[i - 1][j - 1] = int(digit)
    return grid


class SudokuFamily(Family):
    """Its boxes are its parts: a worker fills what the clues alone decide there."""

    stays = THOUGHT

    def parts(self, problem: Problem) -> list[str]:
        return ["1", "2", "3", "4"]

    def alone(self, problem: Problem) -> list[str]:
        return []

    def query(self, work: Thinking, parts: Sequence[str]) -> str:
        return f"box {' '.join(parts)}"

    def think(self, work: Thinking, part: str) -> str:
        before, grid = grid_of(work), grid_of(work)
        top, left = BOXES[int(part) - 1]
        cells = [(i, j) for i in (top, top + 1) for j in (left, left + 1)]
        lines = forced(grid, cells)
        work.results += [(f"{i + 1} {j + 1}", str(grid[i][j])) for i, j in cells if grid[i][j] != before[i][j]]
        return " ".join([f"box {part} ;", *lines])

    def finish(self, work: Thinking) -> tuple[str, str]:
        grid = grid_of(work)
        return " ".join(completed(grid)), render(grid)
