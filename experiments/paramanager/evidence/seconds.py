"""Seconds of the serial form ÷ those of the manager, alone on the machine, for every training.

An arena takes the seconds of its first training. Those of the others are of arenas of one seed, in folders beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, log
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.shared.estimates import as_json, exponential
from orgthink.arena.config import Arena
from orgthink.measure.crossed import Cells, crossed_difference
from orgthink.measure.people import model_seconds
from orgthink.store import RunFolder

SERIAL, PARALLEL = "serial", "paramanager"
"""Methods of the arena."""


def seconds(runs: Path, arena: Arena) -> dict[str, Any] | None:
    """`ratio`: geometric mean over problems and trainings, paired by both. `trainings`: that of each training. `None`
    unless the seconds of all trainings are recorded."""
    first, *others = arena.seeds
    folders = {first: runs, **{seed: runs.with_name(f"{runs.name}-seed{seed}") for seed in others}}
    alone = {
        method: {seed: folder / "evaluations" / method / "uncapped-alone" for seed, folder in folders.items()}
        for method in (SERIAL, PARALLEL)
    }
    if not all((folder / "config.json").is_file() for by_seed in alone.values() for folder in by_seed.values()):
        return None
    serial, parallel = (_logarithms(alone[method]) for method in (SERIAL, PARALLEL))
    gaps = {place: value - parallel[place] for place, value in serial.items() if place in parallel}
    return {
        **as_json({"ratio": exponential(crossed_difference(_cells(serial), _cells(parallel)))}),
        "trainings": [exp(fmean(gap for (_, at), gap in gaps.items() if at == seed)) for seed in arena.seeds],
    }


def _logarithms(folders: Mapping[int, Path]) -> dict[tuple[str, int], float]:
    """Problem and seed → logarithm of the seconds."""
    return {
        (episode.problem.id, seed): log(model_seconds(episode))
        for seed, folder in folders.items()
        for episode in RunFolder.open(folder).episodes()
    }


def _cells(found: Mapping[tuple[str, int], float]) -> Cells:
    return [(problem, seed, value) for (problem, seed), value in found.items()]
