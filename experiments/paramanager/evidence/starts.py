"""How often a manager is right at the end of trainings without fine-tuning, by their metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orgthink.arena.config import Arena
from orgthink.arena.preparing import folder_of
from orgthink.store import RunFolder

STARTS = ("started", "started-bare")
"""Trainings of the base itself: with all rewards, and without those for format and diversity."""
LAST = 10
"""Steps that are compared."""


def starts(runs: Path, arena: Arena) -> dict[str, Any]:
    """Training → reward of the task in its last steps, as shares of its episodes."""
    return {name: _last(folder_of(runs, arena, name, 0)) for name in STARTS}


def _last(folder: Path) -> list[float]:
    return [float(row["task_reward"]) for row in list(RunFolder.open(folder).metrics())[-LAST:]]
