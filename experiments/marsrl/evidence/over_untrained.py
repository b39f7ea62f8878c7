"""What each training gains over the system before it, by the recorded episodes of an arena."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.shared.estimates import as_json
from experiments.shared.recorded import cells_of, is_recorded
from orgthink.arena.config import Arena
from orgthink.measure.accuracy import all_correct
from orgthink.measure.crossed import crossed_difference

BEFORE = "untrained"
"""The system before reinforcement learning."""


def over_untrained(runs: Path, arena: Arena) -> dict[str, Any] | None:
    """Method → right more often than the system before training: the paired difference, and that of each seed.

    `None` unless all episodes are recorded.
    """
    if not all(is_recorded(runs, arena, name) for name in arena.methods):
        return None
    cells = {name: cells_of(runs, arena, name, all_correct) for name in arena.methods}
    return {
        name: {
            **as_json(crossed_difference(cells[name], cells[BEFORE])),
            "seeds": [_share(cells[name], seed) - _share(cells[BEFORE], seed) for seed in arena.seeds],
        }
        for name in arena.methods
        if name != BEFORE
    }


def _share(cells: list[tuple[str, int, float | None]], seed: int) -> float:
    return fmean(right for _, at, right in cells if at == seed and right is not None)
