"""A programmatic teacher for `sudoku`: one empty cell at a time, with the digits that its row, column and box exclude.

    cell 1 2 not 1 3 4 = 2 ; cell 2 1 not 1 2 4 = 3 ; …

It fills the first cell with the fewest candidates. If a cell has several candidates, it takes the smallest digit that
some completed grid has.
"""

from __future__ import annotations

from typing import Any

from orgthink.tasks.sudoku import UNITS, Grid, render

WORDS = ("sudoku", "cell", "not")
"""Words of the problems and the thinking."""

_CELLS = [(i, j) for i in range(4) for j in range(4)]
_PEERS = {cell: {peer for unit in UNITS if cell in unit for peer in unit} - {cell} for cell in _CELLS}


def solve(problem_data: dict[str, Any]) -> tuple[str, str]:
    """(thinking, answer) for the data of a problem; ValueError if no grid keeps the clues."""
    grid = [list(row) for row in problem_data["clues"]]
    steps: list[str] = []
    while (cell := _next(grid)) is not None:
        i, j = cell
        ruled_out = _ruled_out(grid, cell)
        grid[i][j] = _digit(grid, cell)
        steps.append(f"cell {i + 1} {j + 1} not {' '.join(map(str, sorted(ruled_out)))} = {grid[i][j]}")
    return " ; ".join(steps), render(grid)


def _next(grid: Grid) -> tuple[int, int] | None:
    """The first of the empty cells with the fewest candidates; `None` if the grid is full."""
    empty = [(i, j) for i, j in _CELLS if not grid[i][j]]
    return max(empty, key=lambda cell: len(_ruled_out(grid, cell)), default=None)


def _ruled_out(grid: Grid, cell: tuple[int, int]) -> set[int]:
    return {grid[i][j] for i, j in _PEERS[cell]} - {0}


def _digit(grid: Grid, cell: tuple[int, int]) -> int:
    for digit in sorted({1, 2, 3, 4} - _ruled_out(grid, cell)):
        if _completable(_filled(grid, cell, digit)):
            return digit
    raise ValueError(f"no grid keeps these clues: {render(grid)}")


def _completable(grid: Grid) -> bool:
    cell = _next(grid)
    if cell is None:
        return True
    return any(_completable(_filled(grid, cell, digit)) for digit in {1, 2, 3, 4} - _ruled_out(grid, cell))


def _filled(grid: Grid, cell: tuple[int, int], digit: int) -> Grid:
    return [[digit if (i, j) == cell else grid[i][j] for j in range(4)] for i in range(4)]
