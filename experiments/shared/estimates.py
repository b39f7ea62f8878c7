"""Estimates for tables in addition to those of orgthink.measure.estimate."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean

import numpy as np

from orgthink.arena.rows import as_json
from orgthink.measure.estimate import CONFIDENCE, Estimate

__all__ = ["RESAMPLES", "as_json", "by_problem", "ratio"]

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
