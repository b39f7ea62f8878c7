"""`sudoku-sparse`: sudoku with one more empty cell than any lesson has, so that solvers make errors."""

from __future__ import annotations

from orgthink.tasks.sudoku import Sudoku

SUDOKU_SPARSE = Sudoku(name="sudoku-sparse", holes={"sparse": (10, 10)})
"""Six clues; several grids may be right."""
