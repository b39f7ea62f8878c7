"""What becomes of a rejected solution that is wrong, by who takes its place and by who rejected it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.shared.estimates import as_json
from experiments.shared.recorded import cells_of
from orgthink.arena.config import Arena
from orgthink.episode import Episode, Trace
from orgthink.measure.accuracy import all_correct
from orgthink.measure.crossed import crossed_average, crossed_difference, crossed_proportion
from orgthink.measure.verification import Correction, corrections

CORRECTOR, FRESH, UNTRAINED = "marsrl", "fresh-corrector", "fresh-untrained"
"""The trained system; the same with a solver in the corrector's place; the same with the base's verifier, too."""
FIRST = "corrector-1"
"""The output that takes the place of the solver's own solution."""


def repairs(runs: Path, arena: Arena) -> dict[str, Any]:
    """By method: share of the solver's wrong solutions that are right after their first correction, and its tokens.

    `difference`: corrector - fresh solver, over the problems and seeds in which both verifiers rejected a wrong
    solution. `verifier`: how much more often the system with a fresh solver is right by the trained verifier than by
    the base's.
    """
    right = {method: cells_of(runs, arena, method, _mended) for method in (CORRECTOR, FRESH)}
    tokens = {method: cells_of(runs, arena, method, _tokens) for method in (CORRECTOR, FRESH)}
    shares = {
        method: {
            "fixed": as_json(crossed_proportion(right[method])),
            "tokens": as_json(crossed_average(tokens[method])),
        }
        for method in right
    }
    ends = [cells_of(runs, arena, method, all_correct) for method in (FRESH, UNTRAINED)]
    return {
        **shares,
        "difference": as_json(crossed_difference(right[CORRECTOR], right[FRESH])),
        "verifier": as_json(crossed_difference(*ends)),
    }


def _mended(episode: Episode) -> float | None:
    first = _first(episode)
    return None if first is None else float(first.after)


def _tokens(episode: Episode) -> float | None:
    first = _first(episode)
    return None if first is None else float(_trace(episode, first.agent).steps)


def _first(episode: Episode) -> Correction | None:
    """The first correction of a solution that a solver wrote and that is wrong."""
    return next((one for one in corrections(episode) if one.stream == FIRST and not one.before), None)


def _trace(episode: Episode, agent: str) -> Trace:
    return next(trace for trace in episode.traces if trace.agent == agent)
