"""What went wrong in an episode, by the boundary that it crossed."""

from __future__ import annotations

from orgthink.episode import Episode, StopReason, Trace
from orgthink.errors import ErrorKind

_STOPS = {
    StopReason.FORMAT: ErrorKind.PROTOCOL,
    StopReason.BUDGET: ErrorKind.BUDGET,
    StopReason.DEADLINE: ErrorKind.DEADLINE,
}


def error_kinds(episode: Episode) -> frozenset[ErrorKind]:
    """Boundaries at which the episode, or one of its agents, was stopped.

    Records from before errors had kinds do not say whose error it was: there, the error of an agent without a model is
    its tool's, and every other one an engine's.
    """
    found = [_kind(trace) for trace in episode.traces[1:]]
    own = episode.error_kind or ErrorKind.ENGINE if episode.stop is StopReason.ERROR else _STOPS.get(episode.stop)
    return frozenset(kind for kind in (own, *found) if kind is not None)


def _kind(trace: Trace) -> ErrorKind | None:
    if trace.stop is not StopReason.ERROR:
        return _STOPS.get(trace.stop)
    return trace.error_kind or (ErrorKind.TOOL if trace.model is None else ErrorKind.ENGINE)
