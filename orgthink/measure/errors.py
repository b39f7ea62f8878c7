"""Kinds of errors in an episode."""

from __future__ import annotations

from orgthink.record.episode import Episode, StopReason, Trace
from orgthink.util.errors import ErrorKind

_STOPS = {
    StopReason.FORMAT: ErrorKind.PROTOCOL,
    StopReason.BUDGET: ErrorKind.BUDGET,
    StopReason.DEADLINE: ErrorKind.DEADLINE,
}


def error_kinds(episode: Episode) -> frozenset[ErrorKind]:
    """Kinds of the errors that stopped the episode or one of its agents.

    Old records have errors without a kind: the error of an agent without a model then counts as a tool error, and any
    other as an engine error.
    """
    found = [_kind(trace) for trace in episode.traces[1:]]
    own = episode.error_kind or ErrorKind.ENGINE if episode.stop is StopReason.ERROR else _STOPS.get(episode.stop)
    return frozenset(kind for kind in (own, *found) if kind is not None)


def _kind(trace: Trace) -> ErrorKind | None:
    if trace.stop is not StopReason.ERROR:
        return _STOPS.get(trace.stop)
    return trace.error_kind or (ErrorKind.TOOL if trace.model is None else ErrorKind.ENGINE)
