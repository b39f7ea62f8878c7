"""Episodes that an arena has recorded, one folder for each method and training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from orgthink.arena.config import Arena
from orgthink.episode import Episode
from orgthink.store import RunFolder


def episodes_of(runs: Path, method: str, seed: int) -> list[Episode]:
    """The episodes of a method without a cap, in the order in which they ended."""
    return list(RunFolder.open(runs / "evaluations" / method / f"uncapped-seed{seed}").episodes())


def cells_of(
    runs: Path, arena: Arena, method: str, value: Callable[[Episode], float | None]
) -> list[tuple[str, int, float | None]]:
    """(Problem, seed, value) of every attempt, as paired estimates take them."""
    return [(e.problem.id, seed, value(e)) for seed in arena.seeds for e in episodes_of(runs, method, seed)]


def is_recorded(runs: Path, arena: Arena, method: str) -> bool:
    """Whether all attempts of a method without a cap are there: an arena may have been stopped, or run without it."""
    folders = [runs / "evaluations" / method / f"uncapped-seed{seed}" for seed in arena.seeds]
    there = all((folder / "config.json").is_file() for folder in folders)
    return there and all(len(episodes_of(runs, method, seed)) >= arena.n * arena.samples for seed in arena.seeds)
