"""Votes where right answers cannot differ: sudokus of six clues have up to five right grids, which split a vote."""

from __future__ import annotations

from itertools import permutations, product
from pathlib import Path
from typing import Any

from experiments.marsrl.evidence.repairs import CORRECTOR, FRESH, VOTE
from experiments.shared.estimates import as_json
from experiments.shared.recorded import cells_of, episodes_of, is_recorded
from orgthink.arena.config import Arena
from orgthink.measure.accuracy import all_correct
from orgthink.measure.crossed import crossed_difference
from orgthink.tasks.sudoku import Grid, is_valid, keeps

SYSTEMS = {"system": CORRECTOR, "fresh": FRESH}
"""What is compared with a vote."""


def one_solution(runs: Path, arena: Arena) -> dict[str, Any] | None:
    """How much more often systems are right than a vote on problems with one solution; `None` unless all episodes are
    recorded. `problems` is their number."""
    if not all(is_recorded(runs, arena, method) for method in (*SYSTEMS.values(), VOTE)):
        return None
    grids = [list(map(list, rows)) for rows in product(permutations(range(1, 5)), repeat=4)]
    boards = [grid for grid in grids if is_valid(grid)]
    kept = {
        episode.problem.id
        for episode in episodes_of(runs, VOTE, arena.seeds[0])
        if solutions(episode.problem.data["clues"], boards) == 1
    }

    def cells(method: str) -> list[tuple[str, int, float | None]]:
        return [cell for cell in cells_of(runs, arena, method, all_correct) if cell[0] in kept]

    gaps = {name: as_json(crossed_difference(cells(method), cells(VOTE))) for name, method in SYSTEMS.items()}
    return {"problems": len(kept), **gaps}


def solutions(clues: Grid, boards: list[Grid]) -> int:
    """Number of full grids that keep the clues."""
    return sum(keeps(board, clues) for board in boards)
