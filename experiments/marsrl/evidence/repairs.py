"""What becomes of a rejected solution that is wrong, by who takes its place and by who rejected it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.shared.claims import UNKNOWN, over_seeds
from experiments.shared.estimates import as_json
from experiments.shared.recorded import cells_of, episodes_of, is_recorded
from orgthink.arena.config import Arena
from orgthink.episode import Episode, Trace
from orgthink.measure.accuracy import all_correct
from orgthink.measure.crossed import crossed_difference
from orgthink.measure.verification import Correction, corrections

CORRECTOR, FRESH, UNTRAINED, VOTE = "marsrl", "fresh-corrector", "fresh-untrained", "vote-untrained"
"""The trained system; the same with a solver in the corrector's place; the same with the base's verifier, too; and a
vote by that solver."""
FIRST = "corrector-1"
"""The output that takes the place of the solver's own solution."""

Repairs = dict[str, tuple[bool, int]]
"""Problem → whether the first correction of a wrong solution that was rejected is right, and its tokens."""


def repairs(runs: Path, arena: Arena) -> dict[str, Any] | None:
    """Corrections of solver's solutions that are wrong and rejected; `None` unless all episodes are recorded.

    `fixed` and `tokens` of each method: mean over such solutions, of each seed, `None` where it has none.
    `difference`: share fixed, corrector − fresh solver, where both verifiers rejected a wrong solution, of each seed;
    the interval is Student's over seeds, since no problem has such a solution in all of them. `pairs` are their
    numbers. `verifier`: how much more often the system with a fresh solver is right by the trained verifier than by
    the base's; `vote`: than a vote is, where there is one.
    """
    if not all(is_recorded(runs, arena, method) for method in (CORRECTOR, FRESH, UNTRAINED)):
        return None
    found = {
        method: [repaired(episodes_of(runs, method, seed)) for seed in arena.seeds] for method in (CORRECTOR, FRESH)
    }
    both = [sorted(ours.keys() & theirs.keys()) for ours, theirs in zip(found[CORRECTOR], found[FRESH], strict=True)]
    gaps = [
        _mean([ours[problem][0] - theirs[problem][0] for problem in problems])
        for problems, ours, theirs in zip(both, found[CORRECTOR], found[FRESH], strict=True)
    ]
    fresh, untrained = (cells_of(runs, arena, method, all_correct) for method in (FRESH, UNTRAINED))
    voted = VOTE in arena.methods and is_recorded(runs, arena, VOTE)
    vote = crossed_difference(fresh, cells_of(runs, arena, VOTE, all_correct)) if voted else None
    return {
        **{method: _of_each_seed(some) for method, some in found.items()},
        "pairs": [len(problems) for problems in both],
        "difference": _estimate(gaps),
        "verifier": as_json(crossed_difference(fresh, untrained)),
        **({} if vote is None else {"vote": as_json(vote)}),
    }


def repaired(episodes: Sequence[Episode]) -> Repairs:
    """The first corrections of these episodes, where the solver's solution is wrong."""
    found: Repairs = {}
    for episode in episodes:
        first = next((one for one in corrections(episode) if one.stream == FIRST), None)
        if first is not None and not first.before:
            found[episode.problem.id] = (first.after, _trace(episode, first).steps)
    return found


def _of_each_seed(found: Sequence[Repairs]) -> dict[str, Any]:
    return {
        name: [_mean([one[place] for one in some.values()]) for some in found]
        for place, name in enumerate(("fixed", "tokens"))
    }


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _estimate(gaps: Sequence[float | None]) -> dict[str, float | None]:
    """Unknown where a training has no pair: it is not left out."""
    known = [gap for gap in gaps if gap is not None]
    mean = over_seeds(known) if len(known) == len(gaps) else UNKNOWN
    return {"mean": mean.mean, "low": mean.low, "high": mean.high}


def _trace(episode: Episode, correction: Correction) -> Trace:
    return next(trace for trace in episode.traces if trace.agent == correction.agent)
