"""Where managers are right, by the recorded episodes: beside other members, and with and without ledgers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from experiments.shared.estimates import as_json, crossed_ratio
from experiments.shared.recorded import cells_of
from orgthink.arena.config import Arena
from orgthink.episode import Episode
from orgthink.measure.accuracy import all_correct
from orgthink.measure.crossed import Cells, crossed_difference

SEEN = "shuffled"
"""The arena of the members that were trained with: the same problems, beside which strangers are measured."""
LEDGERS = "ledger-mini"
"""The task that needs a search, which members do not have."""
MANAGERS = ("paramanager", "sft")
"""After reinforcement learning, and after fine-tuning alone."""


def beside_strangers(runs: Path, arena: Arena) -> dict[str, Any] | None:
    """Manager → share right beside strangers ÷ beside the members that were trained with, and the difference, paired
    by problem and training; `gain`: how much more reinforcement learning adds there. `None` without the other arena.
    """
    seen = runs.parent / SEEN
    if not (seen / "evaluations").is_dir():
        return None
    here, there = ({name: cells_of(folder, arena, name, all_correct) for name in MANAGERS} for folder in (runs, seen))
    gains = [_gap(where["paramanager"], where["sft"]) for where in (here, there)]
    return as_json(
        {
            "ratio": {name: crossed_ratio(here[name], there[name]) for name in MANAGERS},
            "difference": {name: crossed_difference(here[name], there[name]) for name in MANAGERS},
            "gain": crossed_difference(*gains),
        }
    )


def by_ledgers(runs: Path, arena: Arena) -> dict[str, Any]:
    """Method → the reference - it, on ledgers and on all other tasks."""
    methods = [name for name in arena.methods if name != arena.reference]
    parts = {"ledgers": True, "others": False}

    def right(episode: Episode, ledgers: bool) -> bool | None:
        return all_correct(episode) if ledgers == (episode.problem.task == LEDGERS) else None

    cells = {
        name: {part: cells_of(runs, arena, name, partial(right, ledgers=of)) for part, of in parts.items()}
        for name in (arena.reference, *methods)
    }
    return as_json(
        {
            name: {part: crossed_difference(cells[arena.reference][part], cells[name][part]) for part in parts}
            for name in methods
        }
    )


def _gap(first: Cells, second: Cells) -> list[tuple[str, int, float]]:
    """Of each problem and seed that both have."""
    theirs = {(problem, seed): value for problem, seed, value in second if value is not None}
    return [
        (problem, seed, value - theirs[problem, seed])
        for problem, seed, value in first
        if value is not None and (problem, seed) in theirs
    ]
