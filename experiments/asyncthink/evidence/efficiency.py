"""Right answers per step of critical path, which weighs both against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.shared.recorded import episodes_of
from orgthink.arena.config import Arena
from orgthink.arena.rows import as_json
from orgthink.measure.crossed import crossed_difference
from orgthink.measure.latency import critical_path

STEPS = 100
"""Steps of the critical path to which the numbers refer."""
Cells = list[tuple[str, int, float | None]]
"""(Unit, seed, value) of every attempt."""


def efficiency(runs: Path, arena: Arena) -> dict[str, Any]:
    """Method → right answers in 100 steps: the reference - the method, with an interval over trainings and targets."""
    ours = _cells(runs, arena, arena.reference)
    others = [name for name in arena.methods if name != arena.reference]
    return as_json({name: crossed_difference(ours, _cells(runs, arena, name)) for name in others})


def _cells(runs: Path, arena: Arena, method: str) -> Cells:
    """Of each attempt: 100 ÷ the steps of its critical path if all is right, else 0."""
    return [
        (
            str(episode.problem.data[arena.unit or "target"]),
            seed,
            _right(episode) * STEPS / max(1, critical_path(episode)),
        )
        for seed in arena.seeds
        for episode in episodes_of(runs, method, seed)
    ]


def _right(episode: Any) -> bool:
    return episode.grade is not None and episode.grade.all_correct
