"""Means with a 95 % interval, over problems that may have several samples.

Samples of one problem resemble each other, so the problem is the unit: a problem's value is the mean of its samples,
and the estimate is the mean over problems, each weighing the same. Values that are `None` are left out.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import NormalDist, fmean, stdev

CONFIDENCE = 0.95
"""Of every interval."""

FEW = 30
"""Fewer problems than these make a bootstrap too narrow."""
_RESAMPLES = 5000
Z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
"""Quantile of the normal distribution for `CONFIDENCE`."""

_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160)
"""97.5 % quantiles of Student's t with 1 … 13 degrees of freedom."""

Values = Iterable[tuple[str, float | None]]
"""The id of a problem and the value of one sample of it."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean and how sure of it one can be."""

    mean: float | None
    """Over problems; `None` without values."""
    low: float | None
    """Lower end of the 95 % interval; `None` where the data do not tell."""
    high: float | None
    """Upper end of the 95 % interval; `None` where the data do not tell."""
    n: int
    """Samples behind it."""


def proportion(values: Values) -> Estimate:
    """Share of samples that are true (1, not 0), with Wilson's interval.

    Wilson's stays inside 0 … 1 and has a width at 0 and 1, where a t-interval or a bootstrap has none. With several
    samples a problem it is computed for the effective number of samples p(1 - p) / Var(p), the variance taken between
    problems, and that of fewer problems trusted less, by the quantile of Student's t (Franco et al. 2019): for many
    samples it comes to the t-interval of the problems' means. The effective number is at most that of the samples, and
    at least that of the problems, where nothing but the problem decides; there, as at one sample a problem, this is
    the plain Wilson interval.

    Of intervals for shares from 0.2 to 0.8 some 92 % or more hold the truth, of 5 problems or fewer often 99 %; near 0
    and 1, where all depends on a few problems, it may be 90 %.
    """
    means, n = _means(values)
    if not means:
        return Estimate(None, None, None, 0)
    p, problems = fmean(means.values()), len(means)
    effective = float(problems)
    if 0 < p < 1 and problems > 1:
        variance = max(stdev(means.values()) ** 2 / problems, p * (1 - p) / n)
        effective = max(effective, p * (1 - p) / variance * (Z / student(problems - 1)) ** 2)
    return wilson(p, effective, n)


def wilson(p: float, effective: float, n: int) -> Estimate:
    """Wilson's interval of a share p that is worth an effective number of independent samples; n are behind it."""
    centre = (p + Z**2 / (2 * effective)) / (1 + Z**2 / effective)
    half = Z * sqrt(p * (1 - p) / effective + (Z / (2 * effective)) ** 2) / (1 + Z**2 / effective)
    return Estimate(p, max(0.0, min(p, centre - half)), min(1.0, max(p, centre + half)), n)


def average(values: Values) -> Estimate:
    """Mean of a quantity, with the t-interval of the problems' means; a single problem has no interval.

    Where no value is negative, neither is the interval: a t-interval over few problems does not know that a number of
    steps cannot be.
    """
    means, n = _means(values)
    if not means:
        return Estimate(None, None, None, 0)
    mean, problems = fmean(means.values()), len(means)
    if problems == 1:
        return Estimate(mean, None, None, n)
    half = student(problems - 1) * stdev(means.values()) / sqrt(problems)
    low = mean - half
    return Estimate(mean, max(0.0, low) if min(means.values()) >= 0 else low, mean + half, n)


def difference(first: Values, second: Values, seed: int = 0) -> Estimate:
    """Mean of first - second over the problems that both have, with a paired bootstrap interval; n counts problems.

    Problems are drawn with replacement, so what makes a problem hard for both cancels. The same seed gives the same
    interval; a single problem has none. Of fewer than `FEW` problems it is the paired t-interval: a bootstrap of few is
    too narrow. Of shares it is `doubted`, too.
    """
    ours, theirs = _means(first)[0], _means(second)[0]
    gaps = [ours[problem] - theirs[problem] for problem in sorted(ours.keys() & theirs.keys())]
    if len(gaps) < 2:
        return Estimate(gaps[0] if gaps else None, None, None, len(gaps))
    shares = all(0 <= value <= 1 for value in (*ours.values(), *theirs.values()))
    if len(gaps) < FEW:
        half = student(len(gaps) - 1) * stdev(gaps) / sqrt(len(gaps))
        found = Estimate(fmean(gaps), fmean(gaps) - half, fmean(gaps) + half, len(gaps))
        return doubted(found, gaps) if shares else found
    rng = random.Random(seed)
    drawn = sorted(fmean(rng.choices(gaps, k=len(gaps))) for _ in range(_RESAMPLES))
    tail = round(_RESAMPLES * (1 - CONFIDENCE) / 2)
    found = Estimate(fmean(gaps), drawn[tail], drawn[-1 - tail], len(gaps))
    return doubted(found, gaps) if shares else found


def doubted(found: Estimate, gaps: Sequence[float]) -> Estimate:
    """A difference of shares with an interval that is no narrower than with two pairs more, in each of which one side
    alone is right (Bonett and Price, 2012), and within ±1.

    Pairs in which the sides hardly ever differ would leave hardly any doubt otherwise.
    """
    assert found.low is not None and found.high is not None, "a single problem has no interval"
    more = [*gaps, 1.0, -1.0]
    mean, half = fmean(more), student(len(more) - 1) * stdev(more) / sqrt(len(more))
    return replace(found, low=max(-1.0, min(found.low, mean - half)), high=min(1.0, max(found.high, mean + half)))


def _means(values: Values) -> tuple[Mapping[str, float], int]:
    """Mean of each problem's samples, and how many samples there are."""
    samples: defaultdict[str, list[float]] = defaultdict(list)
    for problem, value in values:
        if value is not None:
            samples[problem].append(float(value))
    return {problem: fmean(of_one) for problem, of_one in samples.items()}, sum(map(len, samples.values()))


def student(freedom: int) -> float:
    """97.5 % quantile of Student's t: from the table, then by its expansion around the normal one (error < 0.001)."""
    if freedom <= len(_T):
        return _T[freedom - 1]
    return Z + (Z**3 + Z) / (4 * freedom) + (5 * Z**5 + 16 * Z**3 + 3 * Z) / (96 * freedom**2)
