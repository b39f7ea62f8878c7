"""Means over problems and training seeds: every training attempts every problem, so both are drawn at random.

With a value x for each problem p and seed s, x = mean + problem + seed + rest. The variance of the mean is estimated
from the mean squares of the two-way table, and the quantile is Student's with Satterthwaite's degrees of freedom: three
trainings tell little of how much trainings differ, and the interval says so. Where seeds differ no more than chance,
it is the interval over problems. One mean square is taken off, so Satterthwaite's number can fall below what seeds
alone have; it is never taken as less: an interval would jump where seeds differ about as much as chance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import floor, sqrt
from statistics import fmean
from typing import NamedTuple

from orgthink.measure.estimate import Estimate, Z, average, difference, doubted, proportion, student, wilson

Cells = Iterable[tuple[str, int, float | None]]
"""Id of a problem, seed of a training, and the value of one sample. Values that are `None` are left out."""

ROUNDING = 1e-9
"""Relative difference below which two mean squares are the same, so that no order of sums decides between them."""

Table = Mapping[str, Mapping[int, float]]
"""Problem → seed → mean of the samples."""


class _Spread(NamedTuple):
    """How sure a mean over problems and seeds is."""

    mean: float
    variance: float
    """Of the mean."""
    freedom: float
    """Degrees of freedom of that variance."""


def crossed_proportion(cells: Cells) -> Estimate:
    """Share of samples that are true, with Wilson's interval at the effective number of samples; n counts samples.

    Problems that some seed lacks are left out. With one seed it is `proportion`; where several have no two problems in
    common it has no interval, for nobody knows how much trainings differ.
    """
    values = list(cells)
    if _seeds(values) < 2:
        return proportion(_plain(values))
    table, n = _table(values)
    if not _crossed(table):
        return replace(proportion(_plain(values)), low=None, high=None)
    spread = _spread(table)
    p, effective = spread.mean, float(len(table))
    if 0 < p < 1 and spread.variance > 0:
        effective = p * (1 - p) / spread.variance * (Z / _quantile(spread)) ** 2
    return wilson(p, max(1.0, min(n, effective)), n)


def crossed_average(cells: Cells) -> Estimate:
    """Mean of a quantity; where no value is negative, neither is the interval. With one seed it is `average`; where
    several have no two problems in common it has no interval."""
    values = list(cells)
    if _seeds(values) < 2:
        return average(_plain(values))
    table, n = _table(values)
    if not _crossed(table):
        return replace(average(_plain(values)), low=None, high=None)
    spread = _spread(table)
    half = _quantile(spread) * sqrt(spread.variance)
    low = spread.mean - half
    least = min(value for seeds in table.values() for value in seeds.values())
    return Estimate(spread.mean, max(0.0, low) if least >= 0 else low, spread.mean + half, n)


def crossed_difference(first: Cells, second: Cells) -> Estimate:
    """Mean of first - second, paired by problem and by seed; n counts problems.

    What makes a problem hard for both cancels. Seeds are paired as they are numbered: the same seed samples the same
    where prompt, weights and temperature are the same, as of a part that both share, and that cancels too. What one
    side lacks is left out. With one seed in all it is `difference`; where no two seeds, or no two problems, are common
    to both it has no interval. Of shares it is `doubted`.
    """
    ours, theirs = list(first), list(second)
    if _seeds([*ours, *theirs]) < 2:
        return difference(_plain(ours), _plain(theirs))
    a, b = _samples(ours), _samples(theirs)
    gaps = [(*key, fmean(values) - fmean(b[key])) for key, values in a.items() if key in b]
    table, _ = _table(gaps)
    if not _crossed(table):
        return Estimate(average(_plain(gaps)).mean, None, None, len({problem for problem, *_ in gaps}))
    spread = _spread(table)
    half = _quantile(spread) * sqrt(spread.variance)
    found = Estimate(spread.mean, spread.mean - half, spread.mean + half, len(table))
    shares = all(0 <= value <= 1 for values in (*a.values(), *b.values()) for value in values)
    return doubted(found, [gap for seeds in table.values() for gap in seeds.values()]) if shares else found


def _seeds(cells: Cells) -> int:
    """How many there are, those without a value included."""
    return len({seed for _, seed, _ in cells})


def _plain(cells: Cells) -> list[tuple[str, float | None]]:
    """Without the seeds."""
    return [(problem, value) for problem, _, value in cells]


def _samples(cells: Cells) -> dict[tuple[str, int], list[float]]:
    """(Problem, seed) → its values, those that are `None` left out."""
    samples: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    for problem, seed, value in cells:
        if value is not None:
            samples[problem, seed].append(float(value))
    return dict(samples)


def _table(cells: Cells) -> tuple[Table, int]:
    """The means of the problems that every seed has, and the number of samples behind them."""
    samples = _samples(cells)
    seeds = sorted({seed for _, seed in samples})
    problems = dict.fromkeys(problem for problem, _ in samples)
    whole = [problem for problem in problems if all((problem, seed) in samples for seed in seeds)]
    n = sum(len(samples[problem, seed]) for problem in whole for seed in seeds)
    return {problem: {seed: fmean(samples[problem, seed]) for seed in seeds} for problem in whole}, n


def _crossed(table: Table) -> bool:
    """Whether it tells problems and seeds apart: whether there are two of each."""
    return len(table) > 1 and len(next(iter(table.values()))) > 1


def _spread(table: Table) -> _Spread:
    """Mean squares of problems, seeds and rest; the variance is never below that of either alone."""
    problems, seeds = len(table), len(next(iter(table.values())))
    rows = {problem: fmean(values.values()) for problem, values in table.items()}
    columns = {seed: fmean(values[seed] for values in table.values()) for seed in next(iter(table.values()))}
    mean = fmean(rows.values())
    free = (problems - 1, seeds - 1, (problems - 1) * (seeds - 1))
    squares = (
        seeds * sum((row - mean) ** 2 for row in rows.values()),
        problems * sum((column - mean) ** 2 for column in columns.values()),
        sum((x - rows[p] - columns[s] + mean) ** 2 for p, values in table.items() for s, x in values.items()),
    )
    of_problems, of_seeds, rest = (square / freedom for square, freedom in zip(squares, free, strict=True))
    both = of_problems + of_seeds - rest
    largest = max(both, of_problems, of_seeds)
    if largest <= 0:
        return _Spread(mean, 0.0, free[0])
    parts = zip((of_problems, of_seeds, rest), free, strict=True)
    if max(of_problems, of_seeds) >= both * (1 - ROUNDING):
        freedom = float(free[0] if of_problems >= of_seeds * (1 - ROUNDING) else free[1])
    else:
        freedom = max(both**2 / sum(square**2 / each for square, each in parts), min(free))
    return _Spread(mean, largest / (problems * seeds), freedom)


def _quantile(spread: _Spread) -> float:
    return student(floor(spread.freedom * (1 + ROUNDING)))
