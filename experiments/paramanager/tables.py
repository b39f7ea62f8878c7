"""The tables and the data of the figures: pure functions of what episodes did. Everything here becomes JSON.

Shares are fractions, lengths are in tokens, costs in units of the paper's Table 7. Every number is {mean, low, high, n}
with its 95 % interval over problems: a problem's value is the mean of its samples, and all problems weigh the same.
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
"""One line of a table; JSON values."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one episode did."""

    problem: str
    """Id of the problem."""
    task: str
    """Whose problem it is."""
    right: bool
    """Whether the answer is."""
    cost: float
    """Cost units of the calls, by the paper's account (Table 7)."""
    replies: int
    """Replies of all models, the manager's own included: the account in which all methods are alike."""
    tokens: int
    """That all agents sampled."""
    steps: int
    """Decoding steps of the critical path."""
    seconds: float
    """Wall clock."""
    tools: Counter[str]
    """Calls that were executed, by tool."""
    models: Counter[str]
    """Those that a model of the pool did, by its name."""


def attempt_of(episode: Episode) -> Attempt:
    """What an episode did; ValueError if it is not graded, or its cost not known."""
    cost = orchestration.cost(episode)
    if episode.grade is None:
        raise ValueError(f"episode {episode.id} is not graded")
    if cost is None:
        raise ValueError(f"nobody knows what episode {episode.id} cost")
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
    """A method, and what its attempts did."""

    method: str
    """As the tables call it."""
    model: str
    """The trained run, or the shipped model."""
    attempts: Sequence[Attempt]
    """Several at each problem."""

    def of(self, measure: Callable[[Attempt], float]) -> list[tuple[str, float]]:
        """A measure of every attempt, with its problem."""
        return [(attempt.problem, measure(attempt)) for attempt in self.attempts]

    @property
    def named(self) -> Row:
        """How a row begins."""
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
    """Tables 1 and 3: how right it is on each task and on all of them, and what that takes."""
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
    """Table 2; `alone` are attempts that had the machine to themselves, for the seconds."""
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
    """How many times faster the first is on the same problems, in seconds and on the critical path; of both, all
    attempts and those that had the machine to themselves."""
    found = {
        "seconds": _times(first[1], second[1], _seconds),
        "critical_path_steps": _times(first[0], second[0], _steps),
    }
    return {"first": first[0].method, "second": second[0].method, **as_json(found)}


def _times(ours: Point, theirs: Point, measure: Callable[[Attempt], float]) -> Estimate:
    return ratio(by_problem(theirs.of(measure)), by_problem(ours.of(measure)))


def target(cost_target: float, point: Point) -> Row:
    """Table 6: what a manager does that was trained to a cost target."""
    found = {"accuracy": proportion(point.of(_right)), **_spent(point)}
    return {"cost_target": cost_target, **point.named, **as_json(found)}


def robust(points: Mapping[float, Point]) -> list[Row]:
    """How right a manager is at every rate of failing calls, and the share that it keeps of its accuracy without."""
    whole = by_problem(points[0.0].of(_right))
    rows = []
    for rate, point in points.items():
        found = {"accuracy": proportion(point.of(_right)), "kept": ratio(by_problem(point.of(_right)), whole)}
        rows.append({**point.named, "faults": rate, **as_json(found | _spent(point))})
    return rows


def comparison(ours: Point, theirs: Point) -> Row:
    """Ours - theirs on the same problems, and what both cost."""
    found = {
        "accuracy": difference(ours.of(_right), theirs.of(_right)),
        "cost_difference": difference(ours.of(_cost), theirs.of(_cost)),
        "first_cost_units": average(ours.of(_cost)),
        "second_cost_units": average(theirs.of(_cost)),
    }
    return {"first": ours.method, "second": theirs.method, "model": theirs.model, **as_json(found)}


def distribution(point: Point) -> Row:
    """Figure 5: which tools a manager calls and which models it asks, as shares of all its calls and questions."""
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
    """Of everything that was counted, all problems together; in order of the names."""
    names = sorted({name for _, count in counted for name in count})
    total = by_problem((problem, count.total()) for problem, count in counted)
    return {name: ratio(by_problem((problem, count[name]) for problem, count in counted), total) for name in names}


COLLAPSE = ("rounds", "reward", "format_reward", "all_correct")
"""What figure 3 shows."""
EFFICIENCY = ("cost_reward", "length_reward", "cost_units", "context_tokens")
"""What figure 4 shows."""
DIVERSITY = ("all_correct", "unique_tools", "calls_per_round", "diversity_reward")
"""What figure 6 shows."""


def over_training(method: str, run: str, lines: Iterable[Mapping[str, Any]], names: Sequence[str]) -> list[Row]:
    """Figures 3, 4 and 6: some of the numbers of a run's metrics.jsonl, step by step; `None` where a step has none."""
    labels = {"method": method, "model": run}
    return [{**labels, "step": line["step"], **{name: line.get(name) for name in names}} for line in lines]
