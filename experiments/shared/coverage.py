"""How often an interval over three trainings holds the truth: two methods that are equally good, many times.

    python -m experiments.shared.coverage

Problems differ in how often they are solved, trainings in how good they are, on the scale of log-odds. An interval is
*narrow* where trainings differ less than chance would have it: then it is over problems alone.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import exp, isclose, nan
from statistics import fmean

from orgthink.measure.crossed import crossed_difference
from orgthink.measure.estimate import average

Attempts = list[tuple[str, int, float]]
EASY, HARD = 2.7, 0.3
"""Parameters of the beta distribution of a problem's chance to be solved: 90 % on average."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Shares of intervals, of all pairs of methods and of those with a narrow one."""

    holds: float
    """Share of all intervals that hold 0, which is the truth."""
    narrow: float
    """Share of intervals that are narrow."""
    narrow_holds: float
    """Share of the narrow ones that hold 0."""


def coverage(pairs: int, spread: float, *, seed: int = 0, trainings: int = 3, problems: int = 100) -> Coverage:
    """Simulate pairs of methods that solve some 90 %, by trainings whose share of solved problems has the standard
    deviation `spread`."""
    rng = random.Random(seed)
    held: list[bool] = []
    narrow: list[bool] = []
    for _ in range(pairs):
        chances = [rng.betavariate(EASY, HARD) for _ in range(problems)]
        ours, theirs = (_attempts(rng, chances, spread, trainings) for _ in range(2))
        found = crossed_difference(ours, theirs)
        assert found.low is not None and found.high is not None
        held.append(found.low <= 0 <= found.high)
        narrow.append(isclose(found.high - found.low, _over_problems(ours, theirs), rel_tol=1e-6))
    narrow_ones = [one for one, is_narrow in zip(held, narrow, strict=True) if is_narrow]
    return Coverage(fmean(held), fmean(narrow), fmean(narrow_ones or [nan]))


def _attempts(rng: random.Random, chances: list[float], spread: float, trainings: int) -> Attempts:
    both = EASY + HARD
    slope = EASY * HARD / (both * (both + 1))  # of the mean chance by log-odds: the mean of p (1 − p)
    skills = [rng.gauss(0, spread / slope) for _ in range(trainings)]
    return [
        (str(problem), training, float(rng.random() < _shifted(chance, skill)))
        for training, skill in enumerate(skills)
        for problem, chance in enumerate(chances)
    ]


def _shifted(chance: float, skill: float) -> float:
    """A chance after its log-odds have grown by a skill."""
    odds = chance * exp(skill)
    return odds / (odds + 1 - chance)


def _over_problems(ours: Attempts, theirs: Attempts) -> float:
    """Width of the interval over problems alone."""
    gaps: dict[str, list[float]] = {}
    for (problem, _, mine), (*_, other) in zip(ours, theirs, strict=True):
        gaps.setdefault(problem, []).append(mine - other)
    found = average([(problem, fmean(values)) for problem, values in gaps.items()])
    assert found.low is not None and found.high is not None
    return found.high - found.low


if __name__ == "__main__":
    for points in (0.0, 2.5, 3.2):
        found = coverage(1_500, points / 100)
        print(
            f"trainings with a standard deviation of {points} points: {found.holds:.0%} of all intervals hold 0; "
            f"{found.narrow:.0%} are narrow, and {found.narrow_holds:.0%} of these hold it"
        )
