"""Estimates for tables in addition to those of orgthink.measure.estimate."""

from __future__ import annotations

from collections.abc import Iterable
from math import exp
from statistics import fmean

import numpy as np

from orgthink.arena.rows import as_json
from orgthink.measure.crossed import Cells, crossed_difference
from orgthink.measure.estimate import CONFIDENCE, Estimate

__all__ = ["RESAMPLES", "as_json", "by_problem", "crossed_ratio", "exponential", "ratio"]

RESAMPLES = 5000
"""Number of resamples of a bootstrap."""


def by_problem(values: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    """One value per problem: the mean of its samples."""
    found: dict[str, list[float]] = {}
    for problem, value in values:
        found.setdefault(problem, []).append(value)
    return [(problem, fmean(of_one)) for problem, of_one in found.items()]


def ratio(ours: Iterable[tuple[str, float]], theirs: Iterable[tuple[str, float]], seed: int = 0) -> Estimate:
    """Mean of ours divided by mean of theirs over the shared problems, with one value per problem; n counts problems.

    The interval is a paired bootstrap over problems, and the same for the same seed. There is no interval if a resample
    could divide by 0, and no mean if the mean of theirs is 0.
    """
    a, b = dict(ours), dict(theirs)
    pairs = np.array([(a[problem], b[problem]) for problem in sorted(a.keys() & b.keys())], dtype=float)
    mean = pairs.mean(0)
    if not mean[1]:
        return Estimate(None, None, None, len(pairs))
    resampled = np.random.default_rng(seed).integers(len(pairs), size=(RESAMPLES, len(pairs)))
    sums = pairs[resampled].sum(1)
    if not sums[:, 1].all():
        return Estimate(float(mean[0] / mean[1]), None, None, len(pairs))
    low, high = np.quantile(sums[:, 0] / sums[:, 1], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(float(mean[0] / mean[1]), float(low), float(high), len(pairs))


def exponential(found: Estimate) -> Estimate:
    """Of a difference of logarithms: the geometric mean of ratios."""
    return Estimate(*(None if end is None else exp(end) for end in (found.mean, found.low, found.high)), found.n)


def crossed_ratio(ours: Cells, theirs: Cells) -> Estimate:
    """Mean of ours divided by mean of theirs, paired by problem and by seed; n counts problems.

    The interval is that of the linear part (the delta method), ours - ratio · theirs as a share of the mean of theirs,
    over problems and trainings as any paired difference has it. There is no mean if the mean of theirs is 0. ValueError
    if one side has a value that the other lacks: a ratio of two means over different problems is not paired.
    """
    a, b = (
        [(problem, seed, float(value)) for problem, seed, value in cells if value is not None]
        for cells in (ours, theirs)
    )
    if sorted(cell[:2] for cell in a) != sorted(cell[:2] for cell in b):
        raise ValueError("both sides of a paired ratio need the same problems and seeds")
    above, below = (fmean(value for *_, value in cells) for cells in (a, b))
    if not below:
        return Estimate(None, None, None, len({problem for problem, *_ in a}))
    mean = above / below
    first, second = (
        [(problem, seed, value * factor) for problem, seed, value in cells]
        for cells, factor in ((a, 1 / below), (b, mean / below))
    )
    gap = crossed_difference(first, second)
    low, high = (None if end is None else mean + end for end in (gap.low, gap.high))
    return Estimate(mean, low, high, gap.n)
