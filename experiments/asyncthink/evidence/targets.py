"""How right a method is by held-out target, for intervals over targets: problems of six countdowns have six of the ten.

A problem that is wrong counts for the targets that it misses, in equal parts, so that the mean over targets is the
share of problems that are all right.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from orgthink_pocket.tasks.countdown_several import COUNTDOWN_MINI_SIX

from experiments.shared.estimates import as_json
from experiments.shared.recorded import episodes_of, is_recorded
from orgthink.arena.config import Arena
from orgthink.episode import Episode
from orgthink.measure.crossed import Cells, crossed_difference


def over_targets(runs: Path, arena: Arena) -> dict[str, Any] | None:
    """Method → all correct, the reference - the method, with an interval over targets and trainings, for the methods
    that are recorded; `None` if the reference is not.
    """
    found = [name for name in arena.methods if is_recorded(runs, arena, name)]
    if arena.reference not in found:
        return None
    ours = _cells(runs, arena, arena.reference)
    others = [name for name in found if name != arena.reference]
    return as_json({name: crossed_difference(ours, _cells(runs, arena, name)) for name in others})


def _cells(runs: Path, arena: Arena, method: str) -> Cells:
    return [
        (target, seed, right)
        for seed in arena.seeds
        for target, right in right_by_target(episodes_of(runs, method, seed)).items()
    ]


def right_by_target(episodes: Iterable[Episode]) -> dict[str, float]:
    """Target → 1 - its part of the wrong problems, times the number of targets. Their mean is the share of problems
    that are all right.
    """
    found = list(episodes)
    wrong = {str(target): 0.0 for each in found for target in _targets(each)}
    for episode in found:
        solved = COUNTDOWN_MINI_SIX.solved(episode.problem, episode.answer or "")
        for target, right in zip(_targets(episode), solved, strict=True):
            if not right:
                wrong[str(target)] += 1 / solved.count(False)
    return {target: 1 - len(wrong) * parts / len(found) for target, parts in wrong.items()}


def _targets(episode: Episode) -> list[int]:
    return [part["target"] for part in episode.problem.data["parts"]]
