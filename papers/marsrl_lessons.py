"""Lessons of solvers, verifiers and correctors of `sudoku-six`, from which one adapter learns all three roles.

    solver       B4 14253 6    a cell, the digits that its row, column and box hold, and the one that is missing
    verifier     3 142536 ok   a unit and its digits, for a random part of the units and up to the first bad one
    corrector    the solver's lines for the empty cells of the unit that the report names, or for all empty cells

What should be learned later is random here: how many units a verifier checks, and whether a corrector mends or begins
again. A verdict is true of the units that were checked, and not always of the grid.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path

from orgthink.grammar.actions import THOUGHT
from orgthink.organizations.prompts import prompt
from orgthink.organizations.verifier_corrector import role_prompt
from orgthink.record.episode import Problem
from orgthink.tasks import task_named
from orgthink.tasks.sudoku import Grid
from orgthink.tasks.sudoku_six import PEERS, ROWS, SIDE, UNITS, Cell, SudokuSix, faults, render, seen
from orgthink.training.coldstart import pairs
from orgthink.training.coldstart.pairs import Pair

STYLE = "brief"
EIGHT, TEN, TWELVE = (SudokuSix((size, size)) for size in (8, 10, 12))
"""Puzzles with so many empty cells, to choose how hard the experiment's are: `papers.marsrl_lessons:TEN`."""
CONTINUES = 0.8
"""Probability that a verifier goes on to another unit: without a bad one it checks five of the 18 on average."""
RIGHT = 0.5
"""Share of right solutions in the lessons of verifiers."""
DOUBTED = 0.15
"""Share of right solutions in the lessons of correctors: a report may be mistaken."""
MENDS = 0.5
"""Share of the correctors that mend; the others begin again."""
ROLES = ("solver", "solver", "verifier", "corrector")
"""Roles of the lessons, in turn: cells are the hardest to learn."""


def filled(clues: Grid, cells: Collection[Cell] = tuple(PEERS)) -> Grid:
    """The clues with the digits of those cells that are empty."""
    missing = {
        cell: next(iter(set(range(1, SIDE + 1)) - {*seen(clues, cell)})) for cell in cells if not digit(clues, cell)
    }
    return [[missing.get((i, j), clues[i][j]) for j in range(SIDE)] for i in range(SIDE)]


def digit(grid: Grid, cell: Cell) -> int:
    return grid[cell[0]][cell[1]]


def name(cell: Cell) -> str:
    return f"{ROWS[cell[0]]}{cell[1] + 1}"


def empty(clues: Grid) -> list[Cell]:
    """The empty cells in the order of reading."""
    return [cell for cell in sorted(PEERS) if not digit(clues, cell)]


def solution(clues: Grid, cells: Collection[Cell], grid: Grid) -> str:
    """The text of a solver or corrector that works out some cells and writes a grid."""
    lines = [f"{name(cell)} {''.join(map(str, seen(clues, cell)))} {digit(grid, cell)}" for cell in cells]
    return "\n".join([*lines, THOUGHT, render(grid)])


def check(grid: Grid, units: Collection[str]) -> tuple[str, str | None]:
    """The text of a verifier that checks these units up to the first bad one, and that one."""
    wrong, lines, bad = {*faults(grid)}, list[str](), None
    for unit in units:
        digits = "".join(str(digit(grid, cell)) for cell in UNITS[unit])
        lines.append(f"{unit} {digits} {'bad' if unit in wrong else 'ok'}")
        if unit in wrong:
            bad = unit
            break
    return "\n".join([*lines, THOUGHT, report(bad), f"Correct: {'yes' if bad is None else 'no'}"]), bad


def report(bad: str | None) -> str:
    """What a corrector is told."""
    return f"Bad: {bad or 'none'}"


def some_units(rng: random.Random) -> list[str]:
    """A random part of the units, in random order."""
    count = 1
    while count < len(UNITS) and rng.random() < CONTINUES:
        count += 1
    return rng.sample(list(UNITS), count)


def mended(clues: Grid, grid: Grid, unit: str) -> tuple[list[Cell], Grid]:
    """The empty cells of a unit, and the grid with their digits."""
    cells = [cell for cell in empty(clues) if cell in UNITS[unit]]
    found = filled(clues, cells)
    return cells, [[found[i][j] or grid[i][j] for j in range(SIDE)] for i in range(SIDE)]


def slipped(clues: Grid, rng: random.Random) -> Grid:
    """The solution with another digit in one or more cells that were empty."""
    grid, cells = filled(clues), empty(clues)
    wrong = 1 + sum(rng.random() < 0.1 for _ in cells[1:])
    for i, j in rng.sample(cells, wrong):
        grid[i][j] = rng.choice([other for other in range(1, SIDE + 1) if other != grid[i][j]])
    return grid


def lesson(role: str, problem: Problem, rng: random.Random) -> Pair:
    """What a role reads and writes."""
    clues = problem.data["clues"]
    if role == "solver":
        return Pair(
            prompt(STYLE, role, problem)[0].content, solution(clues, empty(clues), filled(clues)), role, problem.id
        )
    right = rng.random() < (RIGHT if role == "verifier" else DOUBTED)
    grid, named = filled(clues) if right else slipped(clues, rng), ""
    if role == "verifier":
        text, _ = check(grid, some_units(rng))
    else:
        bad = rng.choice(list(UNITS) if right else faults(grid))
        mend, named = rng.random() < MENDS, report(bad)
        text = solution(clues, *(mended(clues, grid, bad) if mend else (empty(clues), filled(clues))))
    return Pair(role_prompt(STYLE, role, problem, render(grid), named)[0].content, text, role, problem.id)


def lessons(task: str, count: int) -> Iterator[Pair]:
    """Lessons about different problems, the roles in turn."""
    for i, problem in enumerate(islice(task_named(task).problems("train", 0), count)):
        yield lesson(ROLES[i % len(ROLES)], problem, random.Random(f"lesson {problem.id}"))


def write(task: str, count: int, file: Path) -> None:
    """Write a file of lessons."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pairs.write(file, lessons(task, count))
