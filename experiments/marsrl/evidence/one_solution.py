"""Votes where right answers cannot differ: sudokus of six clues have up to six right grids, which split a vote.

`python -m experiments.marsrl.evidence.one_solution` counts the problems of each arena by their right grids.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice, permutations, product
from pathlib import Path
from typing import Any

from experiments.marsrl.evidence.repairs import CORRECTOR, FRESH, VOTE
from experiments.shared.estimates import as_json
from experiments.shared.recorded import cells_of, episodes_of, is_recorded
from orgthink.arena.config import Arena, read_arena
from orgthink.measure.accuracy import all_correct
from orgthink.measure.crossed import crossed_difference
from orgthink.tasks import task_named
from orgthink.tasks.sudoku import Grid, is_valid, keeps
from orgthink.terminal import show

SYSTEMS = {"system": CORRECTOR, "fresh": FRESH}
"""What is compared with a vote."""


def one_solution(runs: Path, arena: Arena) -> dict[str, Any] | None:
    """How much more often systems are right than a vote on problems with one solution; `None` unless all episodes are
    recorded. `problems` is their number."""
    if not all(is_recorded(runs, arena, method) for method in (*SYSTEMS.values(), VOTE)):
        return None
    boards = all_boards()
    single = {
        episode.problem.id
        for episode in episodes_of(runs, VOTE, arena.seeds[0])
        if solutions(episode.problem.data["clues"], boards) == 1
    }

    def cells(method: str) -> list[tuple[str, int, float | None]]:
        return [cell for cell in cells_of(runs, arena, method, all_correct) if cell[0] in single]

    gaps = {name: as_json(crossed_difference(cells(method), cells(VOTE))) for name, method in SYSTEMS.items()}
    return {"problems": len(single), **gaps}


def all_boards() -> list[Grid]:
    """The 288 full grids."""
    grids = (list(map(list, rows)) for rows in product(permutations(range(1, 5)), repeat=4))
    return [grid for grid in grids if is_valid(grid)]


def solutions(clues: Grid, boards: list[Grid]) -> int:
    """Number of full grids that keep the clues."""
    return sum(keeps(board, clues) for board in boards)


def counts(arena: Arena, boards: list[Grid]) -> dict[int, int]:
    """Number of right grids → how many of the arena's problems have so many."""
    problems = islice(task_named(arena.task).problems("test", arena.seed), arena.n)
    return dict(sorted(Counter(solutions(problem.data["clues"], boards) for problem in problems).items()))


if __name__ == "__main__":
    BOARDS = all_boards()
    for name in ("sparse", "repeated", "anew"):
        show(f"{name}: {counts(read_arena(Path(__file__).parent / name / 'arena.toml'), BOARDS)}")
