"""What a step of each training had: how old its tokens were, how many were masked, and where its seconds went."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from orgthink.arena.config import Arena
from orgthink.arena.preparing import folder_of
from orgthink.store import RunFolder

START = "pipeline-start"
"""What all trainings of reinforcement learning come after."""


def pipeline_steps(runs: Path, arena: Arena) -> dict[str, Any]:
    """Means over the steps of each seed's training, by its preparation.

    `age`: weights' updates between the drawing of a trained token and the step that trains on it. `masked`: share of
    tokens that are left out of the loss as mastered. `rollout`, `train`, `wait`: seconds of decoding and of training,
    and from the end of an output to its training; they depend on what else the machine did.
    """
    names = [name for name in arena.preparations if name != START]
    return {name: [_means(_lines(runs, arena, name, seed)) for seed in arena.seeds] for name in names}


def _lines(runs: Path, arena: Arena, name: str, seed: int) -> list[Mapping[str, Any]]:
    return list(RunFolder.open(folder_of(runs, arena, name, seed)).metrics())


def _means(lines: list[Mapping[str, Any]]) -> dict[str, float]:
    masked = sum(line["masked_tokens"] for line in lines)
    return {
        "age": fmean(line["age"] for line in lines if line["age"] is not None),
        "age_max": max(line["age_max"] or 0 for line in lines),
        "masked": masked / (masked + sum(line["trained_tokens"] for line in lines)),
        "rollout": fmean(line["seconds"]["rollout"] for line in lines),
        "train": fmean(line["seconds"]["train"] for line in lines),
        "wait": fmean(line["wait"] for line in lines if line["wait"] is not None),
    }
