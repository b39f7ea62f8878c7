"""Decides the claims about AsyncThink on SmolLM2 from outcomes by problem, and draws their table and frontier.

A condition holds if its mean and its interval are on the right side of their bounds. It fails if the whole interval is
on the wrong side of the bound of the mean; in between it is undecided. A claim has its conditions at both temperatures.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from orgthink.measure.estimate import Estimate, crossed_average, crossed_difference
from papers.__main__ import interval
from papers.claims import Rows, best, cells, path, solved, unit
from papers.outcomes import Outcome

TEMPERATURES = (0.0, 0.6)
MARGIN, MARGIN_OF_A_PART = 0.05, 0.10
"""Losses of the share solved that an interval must exclude where no loss is claimed: on all problems, and on the
largest ones, which are a quarter of them, so that the interval is twice as wide."""
STATES = ("fails", "not run", "undecided", "holds")
"""What a claim is, the worst first: that of its worst condition."""

UNTRAINED = -1
"""Training of outcomes of a model before reinforcement learning."""
VOTES = ("vote-2", "vote-4")
THINKERS = ("sequential", "sequential-x2", "sequential-x4", "thinker-before")

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


def numbers(problem: str) -> int:
    """How many numbers a countdown has, by the id of the problem, such as `countdown-small/8-10-20-27=23x2`."""
    return problem.rpartition("/")[2].count("-") + 1


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


def rise(outcomes: Sequence[Outcome], value: Value) -> Estimate:
    """Mean at the largest problems minus that at the smallest ones."""
    sizes = {numbers(one.problem) for one in outcomes}
    values = cell_values(outcomes, value)
    parts = [
        {key: each for key, each in values.items() if numbers(key[0]) == size} for size in (max(sizes), min(sizes))
    ]
    means = [fmean(part.values()) for part in parts]
    scale = [len(values) / len(part) for part in parts]
    effects = dict.fromkeys(values, 0.0)
    for sign, part, mean, times in zip((1, -1), parts, means, scale, strict=True):
        effects |= {key: sign * times * (each - mean) for key, each in part.items()}
    return around(means[0] - means[1], effects)


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


def shorter(found: Rows) -> list[Condition]:
    """(a) RL shortens the critical path, and accuracy is not lower."""
    after, before = found["main"], found["before"]
    return [
        condition(
            "path after ÷ before is at most 0.80, upper end below 0.90",
            ratio(after, before, PATH),
            0.8,
            0.9,
            least=False,
        ),
        condition(
            f"solved after - before is at least 0, lower end above -{MARGIN}", gap(after, before, SOLVED), 0, -MARGIN
        ),
    ]


def better(found: Rows) -> list[Condition]:
    """(b) At equal tokens of a segment, more is solved than by sequential RL; at equal tokens in all, than by votes."""
    main, alone = found["main"], found["sequential"]
    votes = {label: found[label] for label in VOTES}
    equal = next((label for label in VOTES if tokens(votes[label]) >= tokens(main)), None)
    text = "solved - that of {} is at least {}, lower end above 0"
    return [
        condition(text.format("sequential RL", 0.1), gap(main, alone, SOLVED), 0.1, 0.0),
        Condition("votes with at least as many tokens are needed", None, "not run")
        if equal is None
        else condition(text.format(equal, 0), gap(main, votes[equal], SOLVED), 0.0, 0.0),
    ]


def faster(found: Rows) -> list[Condition]:
    """(c) On the largest problems, the path is much shorter than the best thinker's at about the same accuracy."""
    largest = max(numbers(one.problem) for one in found["main"])
    part = {
        label: [one for one in found[label] if numbers(one.problem) == largest] for label in ("main", *THINKERS, *VOTES)
    }
    top = best(part, (*THINKERS, *VOTES))
    of_top = f"{top}'s at {largest} numbers"
    return [
        condition(
            f"path ÷ {of_top} is at most 0.65, upper end below 1", ratio(part["main"], part[top], PATH), 0.65, 1.0,
            least=False,
        ),
        condition(
            f"solved - {of_top} is at least -0.02, lower end above -{MARGIN_OF_A_PART}",
            gap(part["main"], part[top], SOLVED), -0.02, -MARGIN_OF_A_PART,
        ),
    ]  # fmt: skip


def adapted(found: Rows) -> list[Condition]:
    """(d) It forks where that pays: at the largest problems, not at the smallest, and beats both constant policies."""
    main = found["main"]
    return [
        condition("share that forks, largest - smallest problems, is at least 0.50", rise(main, FORKS), 0.5, 0.0),
        *(
            condition(
                f"path - that of {label} is below 0, upper end too", gap(main, found[label], PATH), 0, 0, least=False
            )
            for label in ("fan-out", "never")
        ),
    ]


CLAIMS: Mapping[str, Callable[[Rows], list[Condition]]] = {"a": shorter, "b": better, "c": faster, "d": adapted}


def at(found: Rows, temperature: float) -> Rows:
    """The rows of a temperature by label. Votes need different samples, so greedy rows are compared with sampled
    votes."""
    rows = {}
    for name, outcomes in found.items():
        label = name.partition(",")[0]
        if name == row_name(label, TEMPERATURES[-1] if label in VOTES else temperature):
            rows[label] = outcomes
    return rows


def decided(found: Rows) -> dict[str, list[Condition]]:
    """Claim → its conditions, at each temperature. A claim without all of its rows has a condition that says so."""
    claims: dict[str, list[Condition]] = {}
    for name, claim in CLAIMS.items():
        claims[name] = []
        for temperature in TEMPERATURES:
            try:
                conditions = claim(at(found, temperature))
            except KeyError as missing:
                conditions = [Condition(f"the row {missing.args[0]} is needed", None, "not run")]
            claims[name] += [one._replace(text=f"T = {temperature:g}: {one.text}") for one in conditions]
    return claims


def state(conditions: Sequence[Condition]) -> str:
    """What a claim is."""
    return min((one.state for one in conditions), key=STATES.index)


def verdicts(found: Rows) -> str:
    """The claims with their conditions as a list in Markdown."""
    lines = []
    for name, conditions in decided(found).items():
        lines.append(f"- **{state(conditions)}**: {CLAIMS[name].__doc__}")
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
    """Draw accuracy against critical path at the higher temperature. A system with several budgets, such as
    `sequential-x2`, is a curve."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "frontier", "svg.fonttype": "none", "font.size": 9}
    from matplotlib import pyplot

    curves: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for label, outcomes in at(found, TEMPERATURES[-1]).items():
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
