"""Conditions of claims about an experiment, decided from outcomes by problem; their table, and the frontier.

A condition holds if its mean and its interval are on the right side of their bounds. It fails if the whole interval is
on the wrong side of the bound of the mean; in between it is undecided. A claim has its conditions at each temperature.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from orgthink.measure.estimate import Estimate, crossed_average, crossed_difference
from papers.__main__ import interval
from papers.claims import Rows, cells, path, solved, unit
from papers.outcomes import Outcome

MARGIN = 0.05
"""Loss of the share solved that an interval must exclude where no loss is claimed."""
STATES = ("fails", "not run", "undecided", "holds")
"""What a claim is, the worst first: that of its worst condition."""

UNTRAINED = -1
"""Training of outcomes of a model before reinforcement learning."""

Value = Callable[[Outcome], float]

SOLVED: Value = attrgetter("solved")
PATH: Value = attrgetter("path")
FORKS: Value = lambda one: one.forks > 0  # noqa: E731


class Condition(NamedTuple):
    """A number with its interval, and what it says about a claim."""

    text: str
    measured: Estimate | None
    """`None` if one of the rows was not run."""
    state: str


def row_name(label: str, temperature: float) -> str:
    """Name of a row in the stored outcomes."""
    return f"{label}, T = {temperature:g}"


def tokens(outcomes: Sequence[Outcome]) -> float:
    """Mean of the sampled tokens of all agents."""
    return fmean(one.tokens for one in outcomes)


def cell_values(outcomes: Sequence[Outcome], value: Value) -> dict[tuple[str, int], float]:
    """Problem and training → value."""
    return {(one.problem, one.training): float(value(one)) for one in outcomes}


def shared(outcomes: Sequence[Outcome], other: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes of a row. Those of an untrained model count for each training of the other row."""
    trainings = sorted({one.training for one in other})
    return [
        replace(one, training=training)
        for one in outcomes
        for training in (trainings if one.training == UNTRAINED else (one.training,))
    ]


def gap(first: Sequence[Outcome], second: Sequence[Outcome], value: Value) -> Estimate:
    """Mean difference, paired by problem and training, with an interval over targets and trainings."""
    return crossed_difference(cells(first, value), cells(shared(second, first), value))


def ratio(first: Sequence[Outcome], second: Sequence[Outcome], value: Value) -> Estimate:
    """Ratio of the means over what both rows have, by its linear approximation."""
    ours, theirs = cell_values(first, value), cell_values(shared(second, first), value)
    keys = sorted(ours.keys() & theirs.keys())
    bottom = fmean(theirs[key] for key in keys)
    found = fmean(ours[key] for key in keys) / bottom
    return around(found, {key: (ours[key] - found * theirs[key]) / bottom for key in keys})


def around(mean: float, effects: Mapping[tuple[str, int], float]) -> Estimate:
    """A number with its interval over targets and trainings; `effects` are what each cell adds to it, 0 on average."""
    sums: defaultdict[tuple[str, int], float] = defaultdict(float)
    for (problem, training), effect in effects.items():
        sums[unit(problem), training] += effect
    times = len(sums) / len(effects)
    found = crossed_average([(target, training, times * each) for (target, training), each in sums.items()])
    ends = (None if end is None else mean + end - (found.mean or 0.0) for end in (found.low, found.high))
    return Estimate(mean, *ends, len(effects))


def condition(
    text: str, measured: Estimate, bound: float, end: float | None = None, *, least: bool = True
) -> Condition:
    """Whether the mean is at least the bound, and the lower end above `end`; without `least` at most, and below."""
    sign = 1 if least else -1
    low, high = (
        -inf if measured.low is None else measured.low,
        inf if measured.high is None else measured.high,
    )
    worst, most = (low, high) if least else (-high, -low)
    if sign * (measured.mean or 0.0) >= sign * bound and (end is None or worst > sign * end):
        return Condition(text, measured, "holds")
    return Condition(text, measured, "fails" if most < sign * bound else "undecided")


def state(conditions: Sequence[Condition]) -> str:
    """What a claim is."""
    return min((one.state for one in conditions), key=STATES.index)


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of an experiment, and the temperatures at which they are decided."""

    named: Mapping[str, Callable[[Rows], list[Condition]]]
    """Claim → its conditions, by the rows of a temperature. The docstring of the function is the claim."""
    temperatures: tuple[float, ...]
    """Temperatures of the evaluations, in rising order."""
    votes: tuple[str, ...]
    """Labels of votes: they need different samples, so greedy rows are compared with sampled votes."""

    def at(self, found: Rows, temperature: float) -> Rows:
        """The rows of a temperature by label."""
        rows = {}
        for name, outcomes in found.items():
            label = name.partition(",")[0]
            if name == row_name(label, self.temperatures[-1] if label in self.votes else temperature):
                rows[label] = outcomes
        return rows

    def decided(self, found: Rows) -> dict[str, list[Condition]]:
        """Claim → its conditions, at each temperature. A claim without all of its rows has a condition that says so."""
        claims: dict[str, list[Condition]] = {}
        for name, claim in self.named.items():
            claims[name] = []
            for temperature in self.temperatures:
                try:
                    conditions = claim(self.at(found, temperature))
                except KeyError as missing:
                    conditions = [Condition(f"the row {missing.args[0]} is needed", None, "not run")]
                claims[name] += [one._replace(text=f"T = {temperature:g}: {one.text}") for one in conditions]
        return claims

    def verdicts(self, found: Rows) -> str:
        """The claims with their conditions as a list in Markdown."""
        lines = []
        for name, conditions in self.decided(found).items():
            lines.append(f"- **{state(conditions)}**: {self.named[name].__doc__}")
            for one in conditions:
                number = "" if one.measured is None else f": {_number(one.measured)}"
                lines.append(f"    - {one.text}{number} ({one.state})")
        return "\n".join(lines)


def _number(found: Estimate) -> str:
    if found.low is None:
        return f"{found.mean or 0.0:.3f}, no interval"
    return interval(found, 1, 3)


def table(found: Rows, planned: Mapping[str, int]) -> str:
    """A line for each planned row, which has so many trainings. What was not run is said."""
    lines = [
        "| system, temperature | trainings | solved, % | critical path | tokens | fork, % |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name, trainings in planned.items():
        outcomes = found.get(name, [])
        done = len({one.training for one in outcomes})
        cells = ["not run", "", "", ""]
        if outcomes:
            forking = 100 * fmean(map(FORKS, outcomes))
            cells = [_percent(outcomes), _steps(outcomes), f"{tokens(outcomes):.0f}", f"{forking:.0f}"]
        lines.append(f"| {name} | {done} of {trainings} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _percent(outcomes: Sequence[Outcome]) -> str:
    return interval(solved(outcomes), 100, 1)


def _steps(outcomes: Sequence[Outcome]) -> str:
    return interval(path(outcomes), 1, 0)


def frontier(found: Rows, file: Path) -> None:
    """Draw accuracy against critical path, by label. A system with several budgets, such as `sequential-x2`, is a
    curve."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "frontier", "svg.fonttype": "none", "font.size": 9}
    from matplotlib import pyplot

    curves: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for label, outcomes in found.items():
        point = (path(outcomes).mean or 0.0, 100 * (solved(outcomes).mean or 0.0))
        curves[label.partition("-x")[0]].append(point)
    figure, axes = pyplot.subplots(figsize=(6.4, 3.6), layout="constrained")
    for label, points in curves.items():
        axes.plot(*zip(*sorted(points), strict=True), "o-", markersize=4)
        axes.annotate(label, max(points), textcoords="offset points", xytext=(6, 4))
    axes.set(xlabel="critical path (decoding steps)", ylabel="solved completely (%)", ylim=(0, 100), xlim=(0, None))
    axes.grid(alpha=0.3)
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)
