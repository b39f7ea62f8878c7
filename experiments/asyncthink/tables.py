"""The tables and the data of the figures, as pure functions of episodes. All results are JSON values.

Shares are fractions. Latency is in decoding steps of the critical path. Seconds are those of an episode on an otherwise
idle machine. Every number is {mean, low, high, n} with its 95 % interval over problems.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

from experiments.shared.estimates import as_json, by_problem, ratio
from orgthink.episode import Episode
from orgthink.measure.concurrency import concurrency
from orgthink.measure.estimate import average, difference, proportion
from orgthink.measure.latency import critical_path
from orgthink.measure.summary import has_format_error, was_truncated
from orgthink.measure.usage import forks, sampled_tokens

Row = dict[str, Any]
"""One row of a table, as JSON values."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """Measures of one episode."""

    problem: str
    """Id of the problem."""
    correct: int
    """n_c: number of different correct solutions."""
    required: int
    """n_s: number of required solutions."""
    capacity: int
    """c: largest number of agents that work at the same time."""
    critical_path_steps: int
    """Critical-path latency (Eq. 4)."""
    concurrency_pool: float | None
    """η in agents; `None` if nothing was decoded."""
    sampled_tokens: int
    """Number of sampled tokens of all agents."""
    forks: int
    """Number of forks by a model. Forks by the code of an organization do not count."""
    format_error: bool
    """Whether any agent made a format error."""
    truncated: bool
    """Whether a budget truncated any agent."""

    @property
    def all_correct(self) -> bool:
        return self.correct >= self.required


def attempt_of(episode: Episode) -> Attempt:
    """The measures of an episode. ValueError if it is not graded."""
    if episode.grade is None:
        raise ValueError(f"episode {episode.id} is not graded")
    return Attempt(
        problem=episode.problem.id,
        correct=episode.grade.correct,
        required=episode.grade.required,
        capacity=episode.capacity,
        critical_path_steps=critical_path(episode),
        concurrency_pool=concurrency(episode),
        sampled_tokens=sampled_tokens(episode),
        forks=forks(episode),
        format_error=has_format_error(episode),
        truncated=was_truncated(episode),
    )


@dataclass(frozen=True, slots=True)
class Point:
    """A method at a budget with its attempts."""

    method: str
    """Name of the method in the tables."""
    model: str
    """Name of the trained run or the shipped model."""
    budget: int
    """Number of tokens that each agent may sample."""
    attempts: Sequence[Attempt]
    """Attempts, several at each problem."""
    worker_budget: int | None = None
    """Number of tokens that each worker may sample; `None`: `budget`."""
    timed: Sequence[tuple[str, float]] = ()
    """(Problem id, seconds) of episodes that ran one at a time."""

    @property
    def all_correct(self) -> float:
        """Share of all-correct attempts. Every problem has the same number of attempts."""
        return fmean(attempt.all_correct for attempt in self.attempts)

    @property
    def critical_path_steps(self) -> float:
        """Mean critical-path latency of the attempts."""
        return fmean(attempt.critical_path_steps for attempt in self.attempts)


def row(point: Point, ours: Point | None = None) -> Row:
    """All measures of a point. `gain` is the all-correct of `ours` minus that of the point, on the same problems."""

    def values(measure: Callable[[Attempt], float | None]) -> list[tuple[str, float | None]]:
        return [(attempt.problem, measure(attempt)) for attempt in point.attempts]

    required = max(attempt.required for attempt in point.attempts)
    found: Row = {
        "method": point.method,
        "model": point.model,
        "budget": point.budget,
        "worker_budget": point.worker_budget or point.budget,
        "all_correct": proportion(values(lambda a: a.all_correct)),
        "at_least": [proportion(values(lambda a, k=k: a.correct >= k)) for k in range(1, required + 1)],
        "accuracy": average(values(lambda a: min(a.correct, a.required) / a.required)),
        "critical_path_steps": average(values(lambda a: a.critical_path_steps)),
        "concurrency_pool": average(values(lambda a: a.concurrency_pool)),
        "concurrency_ratio": average(
            values(lambda a: None if a.concurrency_pool is None else a.concurrency_pool / a.capacity)
        ),
        "forks": average(values(lambda a: a.forks)),
        "sampled_tokens": average(values(lambda a: a.sampled_tokens)),
        "seconds": average(point.timed),
        "format_error_rate": proportion(values(lambda a: a.format_error)),
        "truncated_rate": proportion(values(lambda a: a.truncated)),
    }
    if ours is not None and ours is not point:
        found["gain"] = difference(_means(ours, _right), _means(point, _right))
    return as_json(found)


def better(points: Sequence[Point], trained_at: Mapping[str, int]) -> list[Point]:
    """Points of one method from several checkpoints, the most accurate first. The other names tell their training."""
    best = max(points, key=lambda point: point.all_correct)
    others = [point for point in points if point is not best]
    return [best, *(replace(p, method=f"{p.method} (trained at {trained_at[p.model]})") for p in others)]


def comparison(points: Sequence[Point], ours: Point) -> list[Row]:
    """A table with one row per method, such as table 3."""
    return [row(point, ours) for point in points]


def contest(baselines: Iterable[Sequence[Point]], ours: Point, trained_at: Mapping[str, int]) -> list[Row]:
    """Figure 5 and table 4: the best checkpoint of each baseline, ours, and the baselines' other checkpoints."""
    ranked = [better(points, trained_at) for points in baselines]
    others = [point for _, *rest in ranked for point in rest]
    return comparison([*(best for best, *_ in ranked), ours, *others], ours)


def trajectory(method: str, run: str, lines: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Figure 6: accuracy, concurrency, forks and latency over training, from the metrics.jsonl of a run."""
    names = (
        "step",
        "accuracy",
        "all_correct",
        "concurrency_pool",
        "forks",
        "critical_path_steps",
        "format_error_rate",
        "reward",
    )
    return [{"method": method, "model": run, **{name: line.get(name) for name in names}} for line in lines]


def cheapest(points: Sequence[Point], goal: float) -> Point:
    """The point with the smallest budget whose all-correct reaches the goal. If none does, the point with the best one.

    Ties go to the shorter critical path.
    """
    reached = [point for point in points if point.all_correct >= goal]
    if reached:
        return min(reached, key=lambda point: (point.budget, point.critical_path_steps))
    return max(points, key=lambda point: (point.all_correct, -point.budget, -point.critical_path_steps))


def parity(ours: Point, baselines: Mapping[str, Point]) -> list[Row]:
    """Latency at equal accuracy: ours, then each baseline at the budget that it needs.

    `ratio` is our mean critical path divided by the baseline's. `reached` tells whether the baseline gets as accurate.
    """
    rows = [row(ours)]
    for method, point in baselines.items():
        shorter = ratio(_means(ours, _steps), _means(point, _steps))
        comparison = {"method": method, "reached": point.all_correct >= ours.all_correct, "ratio": asdict(shorter)}
        rows.append({**row(point, ours), **comparison})
    return rows


def _right(attempt: Attempt) -> float:
    return attempt.all_correct


def _steps(attempt: Attempt) -> float:
    return attempt.critical_path_steps


def _means(point: Point, measure: Callable[[Attempt], float]) -> list[tuple[str, float]]:
    return by_problem((attempt.problem, measure(attempt)) for attempt in point.attempts)
