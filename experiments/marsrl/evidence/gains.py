"""What a system gains over its own solver, in each training: no seeds are paired, and a lucky solver cancels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean, variance
from typing import Any

from experiments.marsrl.evidence.trained_parts import judged
from experiments.shared.recorded import episodes_of, is_recorded
from orgthink.arena.config import Arena
from orgthink.episode import Episode
from orgthink.measure import verification
from orgthink.measure.accuracy import all_correct
from orgthink.measure.estimate import student

SYSTEMS = ("marsrl", "shared", "lessons", "untrained")
"""Systems of solver, verifier and corrector."""


def gains(runs: Path, arena: Arena) -> dict[str, Any] | None:
    """By system and seed: share right, share right of its solver's own answers, and what `judged` says of the first
    verdicts.

    `unpaired`: the reference − each other system by shares and by gains over the own solver, with Welch's interval over
    the trainings. `None` unless all episodes are recorded.
    """
    if not all(is_recorded(runs, arena, name) for name in SYSTEMS):
        return None
    found = {name: _over_seeds([_measured(episodes_of(runs, name, seed)) for seed in arena.seeds]) for name in SYSTEMS}
    ours = found[arena.reference]
    others = {name: one for name, one in found.items() if name != arena.reference}
    return {
        **found,
        "unpaired": {
            name: {"right": welch(ours["right"], other["right"]), "gain": welch(_gain(ours), _gain(other))}
            for name, other in others.items()
        },
    }


def welch(first: Sequence[float], second: Sequence[float]) -> dict[str, float]:
    """Difference of the means of two samples with Welch's interval: their variances may differ, and nothing is paired.

    Degrees of freedom are rounded down.
    """
    parts = [variance(sample) / len(sample) for sample in (first, second)]
    squares = sum(part**2 / (len(sample) - 1) for part, sample in zip(parts, (first, second), strict=True))
    freedom = max(1, int(sum(parts) ** 2 / squares)) if squares else len(first) + len(second) - 2
    mean, half = fmean(first) - fmean(second), student(freedom) * sqrt(sum(parts))
    return {"mean": mean, "low": mean - half, "high": mean + half}


def _measured(episodes: Sequence[Episode]) -> dict[str, float]:
    grades = [verification.solver_grade(episode) for episode in episodes]
    return {
        "right": fmean(all_correct(episode) or 0.0 for episode in episodes),
        "solver": fmean(grade is not None and grade.all_correct for grade in grades),
        **judged(episodes),
    }


def _over_seeds(measured: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    return {name: [one[name] for one in measured] for name in measured[0]}


def _gain(found: Mapping[str, Sequence[float]]) -> list[float]:
    return [right - alone for right, alone in zip(found["right"], found["solver"], strict=True)]
