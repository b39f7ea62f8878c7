"""What each training gains over the system before it, by the recorded episodes of an arena."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.shared.estimates import as_json
from orgthink.arena.config import Arena
from orgthink.measure.accuracy import all_correct
from orgthink.measure.crossed import crossed_difference
from orgthink.store import RunFolder

BEFORE = "untrained"
"""The system before reinforcement learning."""


def over_untrained(runs: Path, arena: Arena) -> dict[str, Any]:
    """Method → right more often than the system before training: the paired difference, and that of each seed."""
    cells = {name: _cells(runs, arena, name) for name in arena.methods}
    return {
        name: {
            **as_json(crossed_difference(cells[name], cells[BEFORE])),
            "seeds": [_share(cells[name], seed) - _share(cells[BEFORE], seed) for seed in arena.seeds],
        }
        for name in arena.methods
        if name != BEFORE
    }


def _cells(runs: Path, arena: Arena, method: str) -> list[tuple[str, int, bool | None]]:
    return [
        (episode.problem.id, seed, all_correct(episode))
        for seed in arena.seeds
        for episode in RunFolder.open(runs / "evaluations" / method / f"uncapped-seed{seed}").episodes()
    ]


def _share(cells: list[tuple[str, int, bool | None]], seed: int) -> float:
    return fmean(right for _, at, right in cells if at == seed and right is not None)
