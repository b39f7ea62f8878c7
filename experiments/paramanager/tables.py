"""The tables and the data of the figures, as pure functions of episodes. All results are JSON values.

Shares are fractions. Lengths are in tokens. Costs are in units of the paper's Table 7. Every number is
{mean, low, high, n} with its 95 % interval over problems: the value of a problem is the mean of its samples, and all
problems have equal weight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.shared.estimates import as_json, by_problem, ratio
from orgthink.episode import Episode
from orgthink.measure import orchestration
from orgthink.measure.estimate import Estimate, average, difference, proportion
from orgthink.measure.latency import critical_path
from orgthink.measure.usage import replies, sampled_tokens

Row = dict[str, Any]
"""One row of a table, as JSON values."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """Measures of one episode."""

    problem: str
    """Id of the problem."""
    task: str
    """Name of the problem's task."""
    right: bool
    """Whether the answer is all correct."""
    cost: float
    """Cost units of the calls, by the paper's account (Table 7)."""
    replies: int
    """Number of replies of all models, the manager's own included: the account in which all methods are alike."""
    tokens: int
    """Number of tokens that all agents sampled."""
    steps: int
    """Critical-path latency in decoding steps."""
    seconds: float
    """Wall-clock seconds."""
    tools: Counter[str]
    """Number of executed calls by tool."""
    models: Counter[str]
    """Number of executed calls by model of the pool."""


def attempt_of(episode: Episode) -> Attempt:
    """The measures of an episode. ValueError if it is not graded or its cost is unknown."""
    cost = orchestration.cost(episode)
    if episode.grade is None:
        raise ValueError(f"episode {episode.id} is not graded")
    if cost is None:
        raise ValueError(f"the cost of episode {episode.id} is unknown")
    return Attempt(
        problem=episode.problem.id,
        task=episode.problem.task,
        right=episode.grade.all_correct,
        cost=cost,
        replies=replies(episode),
        tokens=sampled_tokens(episode),
        steps=critical_path(episode),
        seconds=episode.seconds,
        tools=orchestration.tools(episode),
        models=orchestration.models(episode),
    )


@dataclass(frozen=True, slots=True)
class Point:
    """A method with its attempts."""

    method: str
    """Name of the method in the tables."""
    model: str
    """Name of the trained run or the shipped model."""
    attempts: Sequence[Attempt]
    """Attempts, several at each problem."""

    def of(self, measure: Callable[[Attempt], float]) -> list[tuple[str, float]]:
        """(Problem id, measure) of every attempt."""
        return [(attempt.problem, measure(attempt)) for attempt in self.attempts]

    @property
    def named(self) -> Row:
        """First columns of a row."""
        return {"method": self.method, "model": self.model}


def _right(attempt: Attempt) -> float:
    return attempt.right


def _cost(attempt: Attempt) -> float:
    return attempt.cost


def _replies(attempt: Attempt) -> float:
    return attempt.replies


def _tokens(attempt: Attempt) -> float:
    return attempt.tokens


def _steps(attempt: Attempt) -> float:
    return attempt.steps


def _seconds(attempt: Attempt) -> float:
    return attempt.seconds


def row(point: Point, tasks: Iterable[str]) -> Row:
    """A row of tables 1 and 3: accuracy on each task and on all tasks, cost and tokens."""
    of_task = {task: [(a.problem, a.right) for a in point.attempts if a.task == task] for task in tasks}
    found = {task: proportion(right) for task, right in of_task.items()}
    return {**point.named, **as_json(found | {"accuracy": proportion(point.of(_right)), **_spent(point)})}


def _spent(point: Point) -> dict[str, Estimate]:
    return {
        "cost_units": average(point.of(_cost)),
        "replies": average(point.of(_replies)),
        "tokens": average(point.of(_tokens)),
    }


def timed(point: Point, alone: Point) -> Row:
    """A row of table 2. The seconds are those of `alone`, whose attempts ran one at a time."""
    found = {
        "accuracy": proportion(point.of(_right)),
        "tokens": average(point.of(_tokens)),
        "seconds": average(alone.of(_seconds)),
        "critical_path_steps": average(point.of(_steps)),
        "cost_units": average(point.of(_cost)),
        "replies": average(point.of(_replies)),
    }
    return {**point.named, **as_json(found)}


def speedup(first: tuple[Point, Point], second: tuple[Point, Point]) -> Row:
    """Speedup of the first method on the same problems, in seconds and on the critical path.

    Each method is a pair: all attempts, and those that ran one at a time.
    """
    found = {
        "seconds": _times(first[1], second[1], _seconds),
        "critical_path_steps": _times(first[0], second[0], _steps),
    }
    return {"first": first[0].method, "second": second[0].method, **as_json(found)}


def _times(ours: Point, theirs: Point, measure: Callable[[Attempt], float]) -> Estimate:
    return ratio(by_problem(theirs.of(measure)), by_problem(ours.of(measure)))


def target(cost_target: float, point: Point) -> Row:
    """A row of table 6: a manager that was trained with a cost target."""
    found = {"accuracy": proportion(point.of(_right)), **_spent(point)}
    return {"cost_target": cost_target, **point.named, **as_json(found)}


def robust(points: Mapping[float, Point]) -> list[Row]:
    """Accuracy of a manager at every rate of failing calls, absolute and relative to its accuracy without failures."""
    whole = by_problem(points[0.0].of(_right))
    rows = []
    for rate, point in points.items():
        found = {"accuracy": proportion(point.of(_right)), "kept": ratio(by_problem(point.of(_right)), whole)}
        rows.append({**point.named, "faults": rate, **as_json(found | _spent(point))})
    return rows


def comparison(ours: Point, theirs: Point) -> Row:
    """Difference ours - theirs on the same problems, and the cost of both."""
    found = {
        "accuracy": difference(ours.of(_right), theirs.of(_right)),
        "cost_difference": difference(ours.of(_cost), theirs.of(_cost)),
        "first_cost_units": average(ours.of(_cost)),
        "second_cost_units": average(theirs.of(_cost)),
    }
    return {"first": ours.method, "second": theirs.method, "model": theirs.model, **as_json(found)}


def distribution(point: Point) -> Row:
    """A row of figure 5: the tools and the models that a manager calls, as shares of all calls."""
    tools = _shares([(attempt.problem, attempt.tools) for attempt in point.attempts])
    models = _shares([(attempt.problem, attempt.models) for attempt in point.attempts])
    largest = max(tools, key=lambda tool: tools[tool].mean or 0.0, default=None)
    found = {
        "calls": average(point.of(lambda attempt: attempt.tools.total())),
        "tools": tools,
        "models": models,
        "largest_tool": None if largest is None else {"tool": largest, "share": tools[largest]},
    }
    return {**point.named, **as_json(found)}


def _shares(counted: Sequence[tuple[str, Counter[str]]]) -> dict[str, Estimate]:
    """The share of each name in all counts, over all problems, sorted by name."""
    names = sorted({name for _, count in counted for name in count})
    total = by_problem((problem, count.total()) for problem, count in counted)
    return {name: ratio(by_problem((problem, count[name]) for problem, count in counted), total) for name in names}


COLLAPSE = ("rounds", "reward", "format_reward", "all_correct")
"""Metrics of figure 3."""
EFFICIENCY = ("cost_reward", "length_reward", "cost_units", "context_tokens")
"""Metrics of figure 4."""
DIVERSITY = ("all_correct", "unique_tools", "calls_per_round", "diversity_reward")
"""Metrics of figure 6."""


def over_training(method: str, run: str, lines: Iterable[Mapping[str, Any]], names: Sequence[str]) -> list[Row]:
    """Figures 3, 4 and 6: some metrics of a run's metrics.jsonl by step; `None` for a missing one."""
    labels = {"method": method, "model": run}
    return [{**labels, "step": line["step"], **{name: line.get(name) for name in names}} for line in lines]
