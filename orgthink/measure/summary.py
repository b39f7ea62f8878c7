"""The summary of a run: every measure of every organization as a mean with its 95 % interval (`summary.json`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields
from typing import Any

from orgthink.episode import Episode, FormatError, StopReason
from orgthink.measure.accuracy import all_correct, at_least
from orgthink.measure.concurrency import concurrency
from orgthink.measure.estimate import Estimate, Values, average, difference, proportion
from orgthink.measure.latency import critical_path
from orgthink.measure.usage import Usage, sampled_tokens, usage
from orgthink.measure.verification import solver_grade

Measure = Callable[[Episode], float | None]
"""A number of an episode; `None` if it has none."""

QUANTITIES: dict[str, Measure] = {
    "critical_path_steps": critical_path,
    "seconds": lambda episode: episode.seconds,
    "sampled_tokens": sampled_tokens,
    "concurrency_pool": concurrency,
    "concurrency_workers": lambda episode: concurrency(episode, "workers"),
}
"""Measures that are averaged."""


def summarise(episodes: Iterable[Episode]) -> dict[str, dict[str, Any]]:
    """Organization → measure → `{mean, low, high, n}`, in the order the organizations first appear; JSON values.

    Every episode counts in every measure that it has a value for, failed ones too: `errors` is their share, `ungraded`
    the number that no accuracy knows of, `usage` what each role used. Organizations with a solver have
    `solver_correct` too. Shares have Wilson intervals, quantities t-intervals, both over problems (see
    `orgthink.measure.estimate`).
    """
    by_organization: defaultdict[str, list[Episode]] = defaultdict(list)
    for episode in episodes:
        by_organization[episode.organization].append(episode)
    return {organization: _summary(attempts) for organization, attempts in by_organization.items()}


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


def _summary(episodes: Sequence[Episode]) -> dict[str, Any]:
    def share(measure: Measure) -> dict[str, Any]:
        return asdict(proportion(_values(episodes, measure)))

    solved = any(trace.role == "solver" for episode in episodes for trace in episode.traces)
    required = max(episode.problem.required for episode in episodes)
    return {
        "n": len(episodes),
        "problems": len({episode.problem.id for episode in episodes}),
        "ungraded": sum(episode.grade is None for episode in episodes),
        "all_correct": share(all_correct),
        **({"solver_correct": share(solver_correct)} if solved else {}),
        "at_least": [share(lambda episode, a=a: at_least(episode, a)) for a in range(1, required + 1)],
        **{name: asdict(average(_values(episodes, measure))) for name, measure in QUANTITIES.items()},
        "format_error_rate": share(has_format_error),
        "format_errors": {kind.value: share(lambda episode, kind=kind: _made(episode, kind)) for kind in FormatError},
        "truncated_rate": share(was_truncated),
        "errors": share(_failed),
        "usage": {row.role: _used(row, len(episodes)) for row in usage(episodes)},
    }


def _used(row: Usage, episodes: int) -> dict[str, float | None]:
    """What a role used, as a mean over the episodes; its share of the critical path is that of all episodes."""
    used = {field.name: getattr(row, field.name) for field in fields(row) if field.name != "role"}
    return {name: value if value is None or name == "share" else value / episodes for name, value in used.items()}


def _values(episodes: Iterable[Episode], measure: Measure) -> Values:
    return [(episode.problem.id, measure(episode)) for episode in episodes]


def _made(episode: Episode, kind: FormatError) -> bool:
    return any(fault.kind is kind for fault in episode.format_faults)


def _failed(episode: Episode) -> bool:
    """Whether the engine or a tool failed, for the episode or for one of its agents."""
    return StopReason.ERROR in (episode.stop, *(trace.stop for trace in episode.traces))
