"""Reviews of `sudoku`: each row next to its clues, then each column and each box.

    row 1 : 1 0 3 0 1 2 3 4 ok ; … column 2 : 2 4 4 1 bad ; … </think> finding column 2 ; box 2 correctness : wrong

A corrector works out again the cells that lie in most of the named units.
"""

from __future__ import annotations

import random
from collections import Counter

from orgthink.grammar.actions import THOUGHT
from orgthink.record.episode import Problem
from orgthink.tasks.sudoku import UNITS, Grid, is_valid, read
from orgthink_pocket.base.review import ProposedSolution, Reviews, answer, answer_of, reported
from orgthink_pocket.base.sudoku import completed
from orgthink_pocket.tasks.sudoku import render

NAMES = tuple(f"{kind} {i}" for kind in ("row", "column", "box") for i in range(1, 5))
"""Names of the units, in the order of `UNITS`."""


class SudokuReviews(Reviews):
    """Completed grids."""

    def draft(self, problem: Problem, wrong: bool, rng: random.Random) -> ProposedSolution:
        grid = [list(row) for row in problem.data["clues"]]
        completed(grid)
        right = render(grid)
        if not wrong:
            return ProposedSolution(answer(right), True)
        while True:
            slip = _slipped(grid, rng)
            found = _bad(problem.data["clues"], slip)
            if found and _mended(problem.data["clues"], slip, found) is not None:
                return ProposedSolution(answer(render(slip)), False)

    def report(self, problem: Problem, solution: str) -> str:
        clues, grid = problem.data["clues"], _grid(solution)
        bad = _bad(clues, grid)
        lines: list[str] = []
        for name, unit in zip(NAMES, UNITS, strict=True):
            digits = " ".join(str(grid[i][j]) for i, j in unit)
            given = f"{' '.join(str(clues[i][j]) for i, j in unit)} " if name.startswith("row") else ""
            lines.append(f"{name} : {given}{digits} {'bad' if name in bad else 'ok'}")
        return reported(lines, " ; ".join(bad) or None)

    def corrected(self, problem: Problem, solution: str, findings: str) -> str:
        named = findings.removeprefix("finding ").split(" ; ")
        found = _mended(problem.data["clues"], _grid(solution), named)
        assert found is not None
        lines, grid = found
        return f"{' '.join(lines)} {THOUGHT} {answer(render(grid))}"

    def doubt(self, problem: Problem, solution: str, rng: random.Random) -> str:
        """A row: working its cells out again gives the same digits."""
        return f"finding {rng.choice(NAMES[:4])}"


def _grid(solution: str) -> Grid:
    grid = read(answer_of(solution))
    assert grid is not None
    return grid


def _slipped(grid: Grid, rng: random.Random) -> Grid:
    """The grid with another digit in a cell, or two cells exchanged."""
    slip = [list(row) for row in grid]
    (i, j), (k, m) = rng.sample([(i, j) for i in range(4) for j in range(4)], 2)
    if rng.random() < 0.6:
        slip[i][j] = rng.choice([digit for digit in range(1, 5) if digit != grid[i][j]])
    else:
        slip[i][j], slip[k][m] = grid[k][m], grid[i][j]
    return slip


def _bad(clues: Grid, grid: Grid) -> list[str]:
    """Names of the units without all digits, and of the rows that change a clue."""
    keeps_clues = [
        all(clue in (0, digit) for clue, digit in zip(*rows, strict=True)) for rows in zip(clues, grid, strict=True)
    ]
    return [
        name
        for i, (name, unit) in enumerate(zip(NAMES, UNITS, strict=True))
        if {grid[r][c] for r, c in unit} != {1, 2, 3, 4} or (i < 4 and not keeps_clues[i])
    ]


def _mended(clues: Grid, grid: Grid, named: list[str]) -> tuple[list[str], Grid] | None:
    """The lines about the cells in most of the named units, and the grid; `None` if that mends nothing."""
    count = Counter(cell for name, unit in zip(NAMES, UNITS, strict=True) if name in named for cell in unit)
    most = max(count.values())
    mended = [list(row) for row in grid]
    for (i, j), times in count.items():
        if times == most:
            mended[i][j] = clues[i][j]
    try:
        lines = completed(mended)
    except (ValueError, StopIteration):
        return None
    keeps_clues = all(
        clue in (0, digit) for rows in zip(clues, mended, strict=True) for clue, digit in zip(*rows, strict=True)
    )
    return (lines, mended) if is_valid(mended) and keeps_clues else None
