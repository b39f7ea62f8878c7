"""What the trainings did to each part of the system: verifiers on the same solutions, and lengths of outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.shared.recorded import episodes_of
from orgthink.arena.config import Arena
from orgthink.arena.preparing import folder_of
from orgthink.arena.rows import as_json
from orgthink.episode import Episode
from orgthink.measure import verification
from orgthink.measure.accuracy import all_correct
from orgthink.measure.crossed import Cells, crossed_difference
from orgthink.organizations.prompts import style_named
from orgthink.store import RunFolder

VERIFIERS = ("verify-adaptive", "verify-balanced", "verify-random", "verify-untrained")
"""Methods whose verifiers judge the same solutions, of the base at T = 1: real errors, which no lesson has."""
STREAMS = ("verifier-1", "corrector-1")
"""Outputs whose length is followed: those about a solver's solution."""
SOME = 10
"""First and last steps that are compared."""


def trained_parts(runs: Path, arena: Arena) -> dict[str, Any]:
    """Verifiers: recall, false alarms and recall · (1 - false alarms) of each seed. `over_stronger`: how much more
    often the system is right than its stronger solver alone. Lengths: last - first ten steps of each seed."""
    lines = [_metrics(runs, arena, seed) for seed in arena.seeds]
    return {
        "verifiers": {name: [judged(_episodes(runs, name, seed)) for seed in arena.seeds] for name in VERIFIERS},
        "over_stronger": as_json(
            crossed_difference(_right(runs, arena, "over-stronger"), _right(runs, arena, "stronger"))
        ),
        "lengths": {stream: [_change(one, stream) for one in lines] for stream in STREAMS},
    }


def judged(episodes: Sequence[Episode]) -> dict[str, float]:
    """Of each episode's first verdict: recall of wrong solutions, false alarms, and recall · (1 - false alarms)."""
    form = style_named("pocket-base").verdicts
    first = [verdict for episode in episodes for verdict in verification.judgements(episode, form)[:1]]
    recall = fmean(bool(found) for _, found in verification.recall(first))
    alarms = fmean(bool(found) for _, found in verification.false_alarms(first))
    return {"recall": recall, "false_alarms": alarms, "quality": recall * (1 - alarms)}


def _right(runs: Path, arena: Arena, method: str) -> Cells:
    return [
        (episode.problem.id, seed, all_correct(episode))
        for seed in arena.seeds
        for episode in _episodes(runs, method, seed)
    ]


def _episodes(runs: Path, method: str, seed: int) -> list[Episode]:
    return episodes_of(runs, method, seed)


def _metrics(runs: Path, arena: Arena, seed: int) -> list[Mapping[str, Any]]:
    return list(RunFolder.open(folder_of(runs, arena, arena.reference, seed)).metrics())


def _change(lines: list[Mapping[str, Any]], stream: str) -> float:
    seen = [line["tokens"][stream] for line in lines if line["tokens"][stream] is not None]
    return fmean(seen[-SOME:]) - fmean(seen[:SOME])
