"""The rows of the table, as pure functions of episodes. All results are JSON values.

Shares are fractions, lengths are in tokens, and every number is {mean, low, high, n} with its 95 % interval: over
problems, and over trainings too where each seed has its own (`orgthink.measure.estimate`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import exp, log
from typing import Any

from orgthink.measure.accuracy import all_correct
from orgthink.measure.estimate import (
    Cells,
    Estimate,
    average,
    crossed_average,
    crossed_difference,
    crossed_proportion,
    difference,
    proportion,
    without_seeds,
)
from orgthink.measure.latency import concurrency, critical_path
from orgthink.measure.orchestration import cost
from orgthink.measure.usage import forked, replies, sampled_tokens
from orgthink.record.episode import Episode, Exhausted
from orgthink.util.errors import UserError
from orgthink_arena.contest.plans import UNCAPPED, Cap

Row = dict[str, Any]
"""One row of a table, as JSON values."""

QUANTITIES = ("tokens", "cost", "critical_path_steps", "cost_units", "concurrency")
"""Columns next to accuracy and seconds: fields of an attempt."""

PATH_RATIO, SECONDS_RATIO = "critical_path_ratio", "seconds_ratio"
"""Columns of a difference: critical path and seconds as multiples of the reference's, geometric means."""

OK = "ok"
"""Status of a row with results."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """Measures of one episode."""

    unit: str
    """What intervals are over: the problem's id, or the value that it shares with others."""
    task: str
    """Name of the problem's task."""
    right: bool | None
    """Whether the answer is all correct; `None` if it was not graded."""
    tokens: int
    """Tokens that all agents sampled."""
    cost: int
    """Replies of all models, the root's own too: the account in which all methods are alike."""
    critical_path_steps: int
    """Critical-path latency in decoding steps."""
    cost_units: float | None
    """Units of Table 7 of ParaManager; `None` where they are not known."""
    concurrency: float | None
    """η over all agents: how many decode at once, on average; `None` if nothing was decoded."""
    forked: bool
    """Whether a model forked."""
    seconds: float
    """Wall clock, without the waits for people."""
    cut: bool
    """Whether a cap ended an agent, or forbade it a fork."""


def attempt_of(episode: Episode, unit: str | None = None, cap: Cap = UNCAPPED) -> Attempt:
    """The measures of an episode under a cap. `unit` names an entry of the problem's data; UserError if there is
    none."""
    problem = episode.problem
    if unit is not None and unit not in problem.data:
        raise UserError(
            f"a problem of {problem.task} has no {unit!r} in its data, which is to be the unit of intervals"
        )
    return Attempt(
        unit=problem.id if unit is None else str(problem.data[unit]),
        task=problem.task,
        right=all_correct(episode),
        tokens=sampled_tokens(episode),
        cost=replies(episode),
        critical_path_steps=critical_path(episode),
        cost_units=cost(episode),
        concurrency=concurrency(episode),
        forked=forked(episode),
        seconds=episode.seconds,
        cut=any(trace.exhausted is not None and _is_of(cap, trace.exhausted) for trace in episode.traces),
    )


def _is_of(cap: Cap, exhausted: Exhausted) -> bool:
    """Whether the budget that ran out is that of the cap. An agent may have a limit of its own."""
    limit = {"tokens": cap.tokens, "turns": cap.replies}.get(exhausted.budget)
    return limit is not None and exhausted.limit == limit


@dataclass(frozen=True, slots=True)
class Results:
    """What a method has come to at one cap."""

    method: str
    """Its name."""
    by_seed: Mapping[int, Sequence[Attempt]]
    """Attempts by seed."""
    alone: Mapping[int, Sequence[Attempt]]
    """Attempts that ran one at a time, by seed; empty where seconds were not measured."""
    trained: bool
    """Whether each seed has a preparation of its own, so that seeds differ by more than sampling."""
    search_tokens: Mapping[int, int]
    """Tokens that were sampled before, by seed: in preparations, and in choosing settings."""

    @property
    def seconds(self) -> list[tuple[str, int, float | None]]:
        """(Unit, seed, seconds) of every attempt that ran alone."""
        return [(each.unit, seed, each.seconds) for seed, attempts in self.alone.items() for each in attempts]

    def cells(self, measure: str, task: str | None = None) -> list[tuple[str, int, float | None]]:
        """(Unit, seed, value) of every attempt, or of those at problems of a task."""
        return [
            (attempt.unit, seed, getattr(attempt, measure))
            for seed, attempts in self.by_seed.items()
            for attempt in attempts
            if task in (None, attempt.task)
        ]

    @property
    def attempts(self) -> list[Attempt]:
        """All but those that were timed."""
        return [attempt for attempts in self.by_seed.values() for attempt in attempts]


def row(results: Results, facts: Mapping[str, Any]) -> Row:
    """The row of a method; `facts` about it come first."""
    share = crossed_proportion if results.trained else lambda cells: proportion(without_seeds(cells))
    mean = crossed_average if results.trained else lambda cells: average(without_seeds(cells))
    tasks = dict.fromkeys(attempt.task for attempt in results.attempts)
    found = {
        "accuracy": share(results.cells("right")),
        **{name: mean(results.cells(name)) for name in QUANTITIES},
        "seconds": mean(results.seconds),
        "search_tokens": average((str(seed), float(tokens)) for seed, tokens in results.search_tokens.items()),
        "cut": proportion(without_seeds(results.cells("cut"))),
        "forked": share(results.cells("forked")),
        "tasks": {task: share(results.cells("right", task)) for task in tasks},
    }
    largest = {name: max(getattr(attempt, name) for attempt in results.attempts) for name in ("tokens", "cost")}
    return {"method": results.method, "status": OK, **facts, **as_json(found), "largest": largest}


def failed_row(method: str, status: str, facts: Mapping[str, Any]) -> Row:
    """The row of a method without results: it says why, and holds no numbers."""
    names = ("accuracy", *QUANTITIES, "seconds", "search_tokens", "cut", "forked")
    nothing = asdict(Estimate(None, None, None, 0))
    return {"method": method, "status": status, **facts, **dict.fromkeys(names, nothing), "tasks": {}, "largest": None}


def gap(ours: Results, reference: Results) -> Row:
    """A method against the reference: method - reference, paired by problem, and by seed if either was trained."""
    crossed = ours.trained or reference.trained
    paired = crossed_difference if crossed else lambda *cells: difference(*map(without_seeds, cells))
    measures = {"accuracy": "right", "forked": "forked", **dict(zip(QUANTITIES, QUANTITIES, strict=True))}
    found = {name: paired(ours.cells(measure), reference.cells(measure)) for name, measure in measures.items()}
    paths = (_logarithms(each.cells("critical_path_steps")) for each in (ours, reference))
    seconds = (_logarithms(each.seconds) for each in (ours, reference))
    found |= {PATH_RATIO: _exponential(paired(*paths)), SECONDS_RATIO: _exponential(paired(*seconds))}
    return {"method": ours.method, "reference": reference.method, **as_json(found)}


def _logarithms(cells: Cells) -> list[tuple[str, int, float | None]]:
    """The paired difference of logarithms is that of a paired ratio."""
    return [(unit, seed, log(value) if value else None) for unit, seed, value in cells]


def _exponential(estimate: Estimate) -> Estimate:
    """The estimate of which this one is the logarithm."""
    mean, low, high = (None if x is None else exp(x) for x in (estimate.mean, estimate.low, estimate.high))
    return Estimate(mean, low, high, estimate.n)


def frontier(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points (price, value) that no other one beats: none costs at most as much and is worth more, or costs less
    and is worth as much. By rising price."""
    best: list[tuple[float, float]] = []
    for price, value in sorted(set(points), key=lambda point: (point[0], -point[1])):
        if not best or value > best[-1][1]:
            best.append((price, value))
    return best


def as_json(value: Any) -> Any:
    """The value with every nested estimate converted to {mean, low, high, n}."""
    if isinstance(value, list):
        return [as_json(one) for one in value]
    if isinstance(value, dict):
        return {name: as_json(one) for name, one in value.items()}
    return asdict(value) if isinstance(value, Estimate) else value
