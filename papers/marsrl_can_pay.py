"""Can solver, verifier and corrector pay off? `python -m papers.marsrl_can_pay` decides the claims of `marsrl_smollm2`
without a model, for players that err by chance. It says how good they must be for the claims to be possible.

A hard cell of a problem is hard in each attempt, and half of its errors are the same wrong digit, so votes are not
independent. Tokens are those of SmolLM2 for the texts of the lessons.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from math import exp, log

from orgthink.record.episode import Problem
from orgthink.tasks.sudoku import Grid
from orgthink.tasks.sudoku_six import SIDE, UNITS, Cell, SudokuSix, faults, render
from orgthink.tasks.vote import vote
from papers.claims import Rows
from papers.conditions import UNTRAINED, row_name
from papers.marsrl_lessons import CONTINUES, MENDS, digit, empty, filled, mended
from papers.marsrl_smollm2 import DESIGN
from papers.marsrl_smollm2_claims import CHOICES, CLAIMS, VOTES
from papers.outcomes import Outcome
from papers.stages import summary

CELL, GRID, UNIT, VERDICT = 11, 53, 10.3, 14
"""Tokens of a line about a cell, of the grid at the end, of a line about a unit, and of the verdict."""
ROUNDS = 6


@dataclass(frozen=True, slots=True)
class Skill:
    """How often players err, and what they choose."""

    wrong: float
    """Probability that a cell of average difficulty is wrong."""
    goes_on: float = CONTINUES
    """Probability that a verifier checks another unit."""
    misread: float = 0.01
    """Probability that a verifier is wrong about a unit."""
    mends: float = MENDS
    """Probability that a corrector mends, and does not begin again."""
    spread: float = 1.0
    """Standard deviation of a cell's difficulty, in log-odds."""


class Players:
    """The players of one system at one problem, and the tokens that they write."""

    def __init__(self, clues: Grid, skill: Skill, seed: str, training: int) -> None:
        self._clues, self._skill, self.tokens, hard = clues, skill, 0.0, random.Random(seed)
        self.right, self.rng = filled(clues), random.Random(f"{seed} {training} {skill}")
        odds = log(skill.wrong / (1 - skill.wrong))
        self._wrong = {cell: 1 / (1 + exp(-odds - skill.spread * hard.gauss(0, 1))) for cell in empty(clues)}
        self._usual = {cell: 1 + (digit(self.right, cell) + hard.randrange(SIDE - 1)) % SIDE for cell in self._wrong}

    def written(self, grid: Grid, cells: Collection[Cell]) -> Grid:
        """The grid with these cells worked out."""
        found = [list(row) for row in grid]
        for i, j in cells:
            found[i][j] = self.right[i][j]
            if self.rng.random() < self._wrong[i, j]:
                others = [other for other in range(1, SIDE + 1) if other != self.right[i][j]]
                found[i][j] = self._usual[i, j] if self.rng.random() < 0.5 else self.rng.choice(others)
        self.tokens += CELL * len(cells) + GRID
        return found

    def solved(self) -> Grid:
        return self.written(self._clues, empty(self._clues))

    def bad_unit(self, grid: Grid) -> tuple[str | None, int]:
        """What a verifier finds, and how many units it checked."""
        wrong, count = {*faults(grid)}, 0
        for unit in self.rng.sample(list(UNITS), len(UNITS)):
            count += 1
            if bad := (unit in wrong) != (self.rng.random() < self._skill.misread):
                break
            if self.rng.random() > self._skill.goes_on:
                break
        self.tokens += UNIT * count + VERDICT
        return unit if bad else None, count

    def corrected(self, grid: Grid, unit: str) -> Grid:
        mends = self.rng.random() < self._skill.mends
        return self.written(grid, mended(self._clues, grid, unit)[0]) if mends else self.solved()

    def loop(self, fresh: bool) -> tuple[bool, tuple[tuple[int, ...], ...]]:
        """Whether verifier and corrector end with the right grid, and the verdicts."""
        first = grid = self.solved()
        judged = list[tuple[int, ...]]()
        for i in range(ROUNDS):
            unit, count = self.bad_unit(grid)
            judged.append((grid == self.right, unit is None, count))
            if unit is None or i == ROUNDS - 1:
                break
            grid = self.solved() if fresh else self.corrected(grid, unit)
        return (grid if unit is None else first) == self.right, tuple(judged)

    def voted(self, problem: Problem, samples: int, verified: bool) -> bool:
        """Whether the most frequent of several grids is right, of those that a verifier passes."""
        grids = [self.solved() for _ in range(samples)]
        passed = [grid for grid in grids if not verified or self.bad_unit(grid)[0] is None]
        return vote(problem, [render(grid) for grid in passed or grids]) == render(self.right)


def outcomes(label: str, skill: Skill, problems: Collection[Problem], trainings: Collection[int]) -> Iterator[Outcome]:
    """The outcomes of a row of the experiment."""
    for training in trainings:
        for problem in problems:
            players, judged = Players(problem.data["clues"], skill, problem.id, training), ()
            if label in VOTES or label in CHOICES or label.startswith("solver"):
                samples = 1 if label.startswith("solver") else int(label[-1])
                right = players.voted(problem, samples, label in CHOICES)
            else:
                right, judged = players.loop(label == "fresh")
            row, tokens = row_name(label, CLAIMS.temperatures[0]), round(players.tokens)
            yield Outcome(row, training, problem.id, right, tokens, tokens, judged=judged)


def simulated(cells: int, before: Skill, after: Skill, alone: Skill, shared: Skill, problems: int = 100) -> Rows:
    """The rows that decide the claims, for players after MarsRL, after RL of the solver alone, and with one reward."""
    drawn = list(islice(SudokuSix((cells, cells)).problems("test", 0), problems))
    skills = {"before": before, "solver-before": before, "solver-only": alone, "shared": shared}
    skills |= dict.fromkeys(VOTES, alone) | dict.fromkeys(("main", "solver-main", "fresh", *CHOICES), after)
    return {
        row_name(label, CLAIMS.temperatures[0]): list(
            outcomes(label, skill, drawn, (UNTRAINED,) if skill is before else (0, 1, 2))
        )
        for label, skill in skills.items()
    }


SCENARIOS = {
    "Ten empty cells, RL of the solver alone helps little": (10, 0.06, 0.05, 0.045, 0.01),
    "Ten empty cells, RL of the solver alone helps much": (10, 0.06, 0.04, 0.02, 0.01),
    "The same, verifiers misread 3 % of the units": (10, 0.06, 0.05, 0.045, 0.03),
    "Twelve empty cells": (12, 0.06, 0.05, 0.04, 0.01),
}
"""Empty cells; errors of cells before, after MarsRL, and after RL of the solver alone; errors of verifiers."""


def main() -> None:
    """Print the table and the claims of each scenario."""
    for text, (cells, before, after, alone, misread) in SCENARIOS.items():
        shared = Skill((before + after) / 2, 0.9, misread)
        skills = Skill(before, misread=misread), Skill(after, 0.97, misread), Skill(alone), shared
        print(f"\n{text}\n\n{summary(DESIGN, simulated(cells, *skills))}")


if __name__ == "__main__":
    main()
