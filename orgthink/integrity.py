"""What holds in every episode beyond the types of its fields. Whatever measures an episode relies on it."""

from __future__ import annotations

from collections.abc import Iterator

from orgthink.episode import Episode, Trace

LONGEST = 1e12
"""Bound of times in seconds and of costs; sums of more would lose all digits."""

MOST_REQUIRED = 10_000
"""Most solutions that a problem may ask for: a table has a column for each."""


def require_integrity(episode: Episode) -> None:
    """ValueError unless the traces are a tree in order, joins are of its agents, and numbers can be added up."""
    if not episode.traces or episode.root.parent is not None:
        raise ValueError("traces: the first must be of the root")
    forked: dict[str, str] = {}
    known: set[str] = set()
    for trace in episode.traces:
        if trace.agent in known:
            raise ValueError(f"traces: two agents are named {trace.agent!r}")
        if trace is not episode.root and forked.get(trace.agent) != trace.parent:
            raise ValueError(f"traces: {trace.agent!r} comes before its parent's fork of it, or has none")
        known.add(trace.agent)
        forked.update({fork.child: trace.agent for fork in trace.forks})
    for trace in episode.traces:
        for join in trace.joins:
            if join.child not in known or forked.get(join.child) != trace.agent:
                raise ValueError(f"traces: {trace.agent!r} joins {join.child!r}, which it did not fork")
    for fault in episode.format_faults:
        if fault.agent not in known:
            raise ValueError(f"format_faults: there is no agent {fault.agent!r}")
    if any(number is not None and not -LONGEST <= number <= LONGEST for number in _numbers(episode)):
        raise ValueError(f"a time or a cost is not a number from {-LONGEST:g} to {LONGEST:g}")
    demands = [episode.problem.required, *([episode.grade.required] if episode.grade else [])]
    if not all(1 <= required <= MOST_REQUIRED for required in demands):
        raise ValueError(f"required: a problem asks for 1 to {MOST_REQUIRED} solutions")


def _numbers(episode: Episode) -> Iterator[float | None]:
    """Times and costs."""
    yield episode.seconds
    for trace in episode.traces:
        yield from _numbers_of(trace)


def _numbers_of(trace: Trace) -> Iterator[float | None]:
    yield from (trace.start, trace.end, trace.cost, trace.queued)
    for span in trace.spans:
        yield from (span.start, span.end)
