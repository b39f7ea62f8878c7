"""The summary of a run (`summary.json`): the mean and 95 % interval of every measure, for each organization."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from math import isfinite
from typing import Any

from orgthink.grammar.toolcall import CallStatus
from orgthink.measure.accuracy import (
    all_correct,
    at_least,
    error_kinds,
    failed,
    has_format_error,
    maj_at_k,
    pass_at_k,
    was_truncated,
)
from orgthink.measure.estimate import Estimate, Values, average, difference, proportion
from orgthink.measure.latency import concurrency, critical_path
from orgthink.measure.orchestration import (
    calls,
    calls_per_round,
    cost,
    managed,
    models,
    rounds,
    statuses,
    tools,
    trajectory_tokens,
)
from orgthink.measure.usage import Prices, Usage, dollars, forked, replies, sampled_tokens, spent, usage
from orgthink.measure.verification import solver_grade
from orgthink.record.episode import Episode, FormatError
from orgthink.util.errors import ErrorKind
from orgthink.util.terminal import reason

_log = logging.getLogger(__name__)

Measure = Callable[[Episode], float | None]
"""Function from an episode to a number, or to `None` if the episode has no value."""

QUANTITIES: dict[str, Measure] = {
    "critical_path_steps": critical_path,
    "seconds": lambda episode: episode.seconds,
    "sampled_tokens": sampled_tokens,
    "replies": replies,
    "concurrency_pool": concurrency,
    "concurrency_workers": lambda episode: concurrency(episode, "workers"),
}
"""Measures of every organization."""

OF_MANAGERS: dict[str, Measure] = {
    "rounds": lambda episode: len(rounds(episode)),
    "calls_per_round": calls_per_round,
    "calls": lambda episode: len(calls(episode)),
    "manager_tokens": trajectory_tokens,
}
"""Measures of organizations whose manager calls tools in rounds."""


def surviving_measures(measures: Mapping[str, Measure]) -> dict[str, Measure]:
    """Measures of a plug-in: a bug in one does not affect the others."""
    return {name: surviving(name, measure) for name, measure in measures.items()}


def surviving(name: str, measure: Measure) -> Measure:
    """A measure that is `None` where the plug-in's measure raises or is not finite; the first failure is logged."""
    warned = False

    def survived(episode: Episode) -> float | None:
        nonlocal warned
        try:
            value = measure(episode)
            if value is not None and not isfinite(value):
                raise ValueError(f"{value} is not a finite number")
        except Exception as error:
            if not warned:
                _log.warning("the measure %s has no value of episode %s: %s", name, episode.id, reason(error))
            warned = True
            return None
        return value

    return survived


def summarise(
    episodes: Iterable[Episode],
    own: Mapping[str, Mapping[str, Measure]] | None = None,
    prices: Prices | None = None,
    *,
    timed_alone: bool = False,
) -> dict[str, dict[str, Any]]:
    """Organization → measure → `{mean, low, high, n}`, as JSON values; organizations in order of their first episodes.

    Every episode counts in every measure for which it has a value, failed episodes included. Shares have Wilson
    intervals and quantities t-intervals, both over problems (see `orgthink.measure.estimate`).

    - `errors` is the share of episodes in which an engine or a tool failed. `error_kinds` has the share with each kind
      of error, `ungraded` the number of episodes without a grade, and `usage` the consumption of each role.
    - With k > 1 samples per problem: `k`, `avg_at_k` (equal to `all_correct`), `pass_at_k` and `maj_at_k`, whose n
      counts problems.
    - With a solver: `solver_correct`. With a known cost: `cost_units`.
    - `forked` is the share of episodes in which a model forked. With several tasks: `by_task` has accuracy, critical
      path and forks of each, by its name.
    - With a manager: `OF_MANAGERS`, and the share of calls by tool, by model and by status.
    - `own` has further measures by the label of the organization; their means are in `measures`.
    - With `prices`: `dollars` of an episode, their sum `dollars_total`, and the part of that which our own counts
      estimate, `dollars_estimated`.
    - `timed_alone`, if one episode ran at a time. Otherwise the order of queueing decides `seconds`, so that tables and
      pages leave them out.
    """
    alone = {"timed_alone": True} if timed_alone else {}
    return {
        name: _summary(attempts, (own or {}).get(name, {}), prices) | alone
        for name, attempts in grouped(episodes, lambda episode: episode.organization).items()
    }


def grouped(episodes: Iterable[Episode], key: Callable[[Episode], str]) -> dict[str, list[Episode]]:
    """The episodes with each key, in the order of their first ones."""
    found: dict[str, list[Episode]] = {}
    for episode in episodes:
        found.setdefault(key(episode), []).append(episode)
    return found


def compare(first: Iterable[Episode], second: Iterable[Episode], measure: Measure = all_correct) -> Estimate:
    """Mean difference of `measure` between `first` and `second`, over the problems that both attempted."""
    return difference(_values(first, measure), _values(second, measure))


def solver_correct(episode: Episode) -> bool | None:
    """Whether the solver's first answer, before any verification, is all correct; `None` without solver or grade."""
    grade = solver_grade(episode)
    return None if grade is None else grade.all_correct


def _summary(episodes: Sequence[Episode], own: Mapping[str, Measure], prices: Prices | None) -> dict[str, Any]:
    def share(measure: Measure) -> dict[str, Any]:
        return asdict(proportion(_values(episodes, measure)))

    solved = any(trace.role == "solver" for episode in episodes for trace in episode.traces)
    required = max(episode.problem.required for episode in episodes)
    return {
        "n": len(episodes),
        "problems": len({episode.problem.id for episode in episodes}),
        "ungraded": sum(episode.grade is None for episode in episodes),
        "all_correct": share(all_correct),
        **_of_several(episodes),
        **({"solver_correct": share(solver_correct)} if solved else {}),
        "at_least": [share(lambda episode, a=a: at_least(episode, a)) for a in range(1, required + 1)],
        **{name: _mean(episodes, measure) for name, measure in QUANTITIES.items()},
        **({"cost_units": _mean(episodes, cost)} if any(cost(episode) is not None for episode in episodes) else {}),
        **(_paid(episodes, prices) if prices else {}),
        **(_orchestration(episodes) if any(map(managed, episodes)) else {}),
        **({"measures": {name: _mean(episodes, measure) for name, measure in own.items()}} if own else {}),
        "forked": share(forked),
        **_by_task(episodes),
        "format_error_rate": share(has_format_error),
        "format_errors": {
            kind.value: share(lambda episode, kind=kind: any(fault.kind is kind for fault in episode.format_faults))
            for kind in FormatError
        },
        "truncated_rate": share(was_truncated),
        "errors": share(failed),
        "error_kinds": {
            kind.value: share(lambda episode, kind=kind: kind in error_kinds(episode)) for kind in ErrorKind
        },
        "usage": {row.role: _used(row, len(episodes)) for row in usage(episodes, prices)},
    }


def _of_several(episodes: Sequence[Episode]) -> dict[str, Any]:
    """avg@k, pass@k and maj@k for k > 1 samples per problem. A problem with fewer than k graded samples has only the
    first one."""
    samples = grouped(episodes, lambda episode: episode.problem.id)
    k = max(map(len, samples.values()))
    if k == 1:
        return {}
    every, averaged = samples.items(), proportion(_values(episodes, all_correct))
    passed = proportion((problem, pass_at_k(attempts, k)) for problem, attempts in every)
    voted = proportion((problem, maj_at_k(attempts, k)) for problem, attempts in every)
    return {"k": k, "avg_at_k": asdict(averaged), "pass_at_k": asdict(passed), "maj_at_k": asdict(voted)}


def _by_task(episodes: Sequence[Episode]) -> dict[str, Any]:
    """What differs between the tasks of a mixture; nothing for one task."""
    tasks = grouped(episodes, lambda episode: episode.problem.task)
    found = {
        task: {
            "n": len(own),
            "all_correct": asdict(proportion(_values(own, all_correct))),
            "critical_path_steps": _mean(own, critical_path),
            "forked": asdict(proportion(_values(own, forked))),
        }
        for task, own in tasks.items()
    }
    return {"by_task": found} if len(found) > 1 else {}


def _paid(episodes: Sequence[Episode], prices: Prices) -> dict[str, Any]:
    """Dollars by the prices; `None` where one is missing."""
    paid = dollars((trace for episode in episodes for trace in episode.traces), prices)
    return {
        "dollars": _mean(episodes, lambda episode: spent(episode, prices)),
        "dollars_total": None if paid is None else paid.total,
        "dollars_estimated": None if paid is None else paid.estimated,
    }


def _orchestration(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Measures of managers. A share is computed over the calls of each problem, and all problems have equal weight."""
    led = [episode for episode in episodes if managed(episode)]
    return {
        **{name: _mean(led, measure) for name, measure in OF_MANAGERS.items()},
        "tool_shares": _shares(led, tools),
        "model_shares": _shares(led, models),
        "call_statuses": _shares(led, statuses, CallStatus),
    }


def _shares(
    episodes: Iterable[Episode], count: Callable[[Episode], Counter[Any]], names: Iterable[str] = ()
) -> dict[str, Any]:
    """The share of each counted name: the given `names` first, then the others by falling frequency."""
    counted = [(episode.problem.id, name) for episode in episodes for name in count(episode).elements()]
    every = dict.fromkeys([*names, *(name for name, _ in Counter(name for _, name in counted).most_common())])
    return {name: asdict(proportion((problem, name == other) for problem, other in counted)) for name in every}


def _used(row: Usage, episodes: int) -> dict[str, float | None]:
    """Consumption of a role as a mean per episode. Its `share` of the critical path is over all episodes together."""
    used = {field.name: getattr(row, field.name) for field in fields(row) if field.name != "role"}
    return {name: value if value is None or name == "share" else value / episodes for name, value in used.items()}


def _mean(episodes: Iterable[Episode], measure: Measure) -> dict[str, Any]:
    return asdict(average(_values(episodes, measure)))


def _values(episodes: Iterable[Episode], measure: Measure) -> Values:
    return [(episode.problem.id, measure(episode)) for episode in episodes]
