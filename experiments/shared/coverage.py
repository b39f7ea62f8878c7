"""How often an interval over three trainings holds the truth: two methods that are equally good, many times.

    python -m experiments.shared.coverage

Problems differ in how often they are solved, trainings in how good they are. An interval is *narrow* where trainings
differ less than chance would have it: then it is over problems alone.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import isclose
from statistics import fmean

from orgthink.measure.crossed import crossed_difference
from orgthink.measure.estimate import average

Attempts = list[tuple[str, int, float | None]]


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
    """Simulate pairs of methods that solve 90 % on average, with trainings whose skill has a standard deviation of
    `spread`."""
    rng = random.Random(seed)
    held: list[bool] = []
    narrow: list[bool] = []
    for _ in range(pairs):
        chances = [rng.betavariate(2.7, 0.3) for _ in range(problems)]
        ours, theirs = (_attempts(rng, chances, spread, trainings) for _ in range(2))
        found = crossed_difference(ours, theirs)
        assert found.low is not None and found.high is not None
        held.append(found.low <= 0 <= found.high)
        narrow.append(isclose(found.high - found.low, _over_problems(ours, theirs), rel_tol=1e-6))
    few = [one for one, is_narrow in zip(held, narrow, strict=True) if is_narrow]
    return Coverage(fmean(held), fmean(narrow), fmean(few))


def _attempts(rng: random.Random, chances: list[float], spread: float, trainings: int) -> Attempts:
    skills = [rng.gauss(0, spread) for _ in range(trainings)]
    return [
        (str(problem), training, float(rng.random() < chance + skill))
        for training, skill in enumerate(skills)
        for problem, chance in enumerate(chances)
    ]


def _over_problems(ours: Attempts, theirs: Attempts) -> float:
    """Width of the interval over problems alone."""
    gaps: dict[str, list[float]] = {}
    for (problem, _, mine), (*_, other) in zip(ours, theirs, strict=True):
        gaps.setdefault(problem, []).append((mine or 0.0) - (other or 0.0))
    found = average([(problem, fmean(values)) for problem, values in gaps.items()])
    return (found.high or 0.0) - (found.low or 0.0)


if __name__ == "__main__":
    for points in (0.0, 2.5, 3.2):
        found = coverage(1_500, points / 100)
        print(
            f"trainings with a standard deviation of {points} points: {found.holds:.0%} of all intervals hold 0; "
            f"{found.narrow:.0%} are narrow, and {found.narrow_holds:.0%} of these hold it"
        )
