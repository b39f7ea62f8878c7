"""`sudoku-sparse`: sudoku with one more empty cell than any lesson has, so that solvers make errors."""

from __future__ import annotations

from orgthink.tasks.sudoku import Grid, Sudoku

SUDOKU_SPARSE = Sudoku(name="sudoku-sparse", holes={"sparse": (10, 10)})
"""Six clues; several grids may be right."""


def render(grid: Grid) -> str:
    """`1 2 3 4 / 3 4 1 2 / …`: a grid on one line."""
    return " / ".join(" ".join(map(str, row)) for row in grid)
