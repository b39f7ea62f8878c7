"""The summary of a run: every measure of every organization as a mean with its 95 % interval (`summary.json`)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from orgthink.episode import Episode, FormatError, StopReason
from orgthink.errors import ErrorKind
from orgthink.grammar.toolcall import CallStatus
from orgthink.measure.accuracy import all_correct, at_least, pass_at_k
from orgthink.measure.concurrency import concurrency
from orgthink.measure.errors import error_kinds
from orgthink.measure.estimate import Estimate, Values, average, difference, proportion
from orgthink.measure.latency import critical_path
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
from orgthink.measure.usage import Usage, replies, sampled_tokens, usage
from orgthink.measure.verification import solver_grade

Measure = Callable[[Episode], float | None]
"""A number of an episode; `None` if it has none."""

QUANTITIES: dict[str, Measure] = {
    "critical_path_steps": critical_path,
    "seconds": lambda episode: episode.seconds,
    "sampled_tokens": sampled_tokens,
    "replies": replies,
    "concurrency_pool": concurrency,
    "concurrency_workers": lambda episode: concurrency(episode, "workers"),
}
"""Measures that are averaged."""

OF_MANAGERS: dict[str, Measure] = {
    "rounds": lambda episode: len(rounds(episode)),
    "calls_per_round": calls_per_round,
    "calls": lambda episode: len(calls(episode)),
    "manager_tokens": trajectory_tokens,
}
"""Measures that are averaged where a manager calls tools in rounds."""


def summarise(
    episodes: Iterable[Episode], own: Mapping[str, Mapping[str, Measure]] | None = None
) -> dict[str, dict[str, Any]]:
    """Organization → measure → `{mean, low, high, n}`, in the order the organizations first appear; JSON values.

    Every episode counts in every measure that it has a value for, failed ones too: `errors` is their share,
    `error_kinds` that of each boundary that they crossed, `ungraded` the number that no accuracy knows of, `usage` what
    each role used. Where problems have k > 1 samples there are `k`, `avg_at_k`, which is `all_correct` by another name,
    and `pass_at_k`, whose n counts problems. Organizations with a solver have `solver_correct` too, those whose cost is
    known `cost_units`, and those with a manager `OF_MANAGERS` and what share of the calls went to each tool, to each
    model and to each status. `own` are measures that organizations bring, by the organization's label; their means are
    in `measures`. Shares have Wilson intervals, quantities t-intervals, both over problems (see
    `orgthink.measure.estimate`).
    """
    by_organization: defaultdict[str, list[Episode]] = defaultdict(list)
    for episode in episodes:
        by_organization[episode.organization].append(episode)
    return {name: _summary(attempts, (own or {}).get(name, {})) for name, attempts in by_organization.items()}


def compare(
    first: Iterable[Episode], second: Iterable[Episode], measure: Measure = all_correct, seed: int = 0
) -> Estimate:
    """How much larger a measure is in the first episodes than in the second, on the problems that both attempted."""
    return difference(_values(first, measure), _values(second, measure), seed)


def has_format_error(episode: Episode) -> bool:
    """Whether anybody broke the protocol, by any kind but TRUNCATED: to be cut off is no error of form.

    The four kinds of the paper (section 3.2 of AsyncThink) and malformed tags, in every organization alike.
    """
    return any(fault.kind is not FormatError.TRUNCATED for fault in episode.format_faults)


def was_truncated(episode: Episode) -> bool:
    """Whether a limit of tokens or another budget cut off any of the agents, workers included."""
    return any(trace.stop in (StopReason.LENGTH, StopReason.BUDGET) for trace in episode.traces)


def solver_correct(episode: Episode) -> bool | None:
    """Whether the solver's own answer, before anybody judged it, is all correct; `None` without solver or grade."""
    grade = solver_grade(episode)
    return None if grade is None else grade.all_correct


def _summary(episodes: Sequence[Episode], own: Mapping[str, Measure]) -> dict[str, Any]:
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
        **(_orchestration(episodes) if any(map(managed, episodes)) else {}),
        **({"measures": {name: _mean(episodes, measure) for name, measure in own.items()}} if own else {}),
        "format_error_rate": share(has_format_error),
        "format_errors": {kind.value: share(lambda episode, kind=kind: _made(episode, kind)) for kind in FormatError},
        "truncated_rate": share(was_truncated),
        "errors": share(_failed),
        "error_kinds": {
            kind.value: share(lambda episode, kind=kind: kind in error_kinds(episode)) for kind in ErrorKind
        },
        "usage": {row.role: _used(row, len(episodes)) for row in usage(episodes)},
    }


def _of_several(episodes: Sequence[Episode]) -> dict[str, Any]:
    """avg@k and pass@k, for k > 1 samples a problem; a problem of which fewer are graded has no pass@k."""
    samples: defaultdict[str, list[Episode]] = defaultdict(list)
    for episode in episodes:
        samples[episode.problem.id].append(episode)
    k = max(map(len, samples.values()))
    if k == 1:
        return {}
    passed = ((problem, pass_at_k(of_one, k)) for problem, of_one in samples.items())
    averaged = _values(episodes, all_correct)
    return {"k": k, "avg_at_k": asdict(proportion(averaged)), "pass_at_k": asdict(proportion(passed))}


def _orchestration(episodes: Sequence[Episode]) -> dict[str, Any]:
    """What managers did; each share is of the calls of a problem, and the problems weigh the same."""
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
    """What share of everything counted each name has: the given names first, then the others, frequent ones first."""
    counted = [(episode.problem.id, name) for episode in episodes for name in count(episode).elements()]
    every = dict.fromkeys([*names, *(name for name, _ in Counter(name for _, name in counted).most_common())])
    return {name: asdict(proportion((problem, name == other) for problem, other in counted)) for name in every}


def _used(row: Usage, episodes: int) -> dict[str, float | None]:
    """What a role used, as a mean over the episodes; its share of the critical path is that of all episodes."""
    used = {field.name: getattr(row, field.name) for field in fields(row) if field.name != "role"}
    return {name: value if value is None or name == "share" else value / episodes for name, value in used.items()}


def _mean(episodes: Iterable[Episode], measure: Measure) -> dict[str, Any]:
    return asdict(average(_values(episodes, measure)))


def _values(episodes: Iterable[Episode], measure: Measure) -> Values:
    return [(episode.problem.id, measure(episode)) for episode in episodes]


def _made(episode: Episode, kind: FormatError) -> bool:
    return any(fault.kind is kind for fault in episode.format_faults)


def _failed(episode: Episode) -> bool:
    """Whether the engine or a tool failed, for the episode or for one of its agents."""
    return StopReason.ERROR in (episode.stop, *(trace.stop for trace in episode.traces))
