"""Seconds in which an episode waited for people: they are no time of models.

While a person writes or decides, models and tools may go on. Those seconds count as theirs. What is left is the time in
which people alone kept the episode waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from orgthink.record.episode import Episode, Origin, Trace

Interval = tuple[float, float]
"""Start and end, in seconds from the start of the episode."""


def people_seconds(episode: Episode) -> float:
    """Seconds in which somebody was waited for and neither a model nor a tool was at work."""
    return _length(waits_for_people(episode))


def model_seconds(episode: Episode) -> float:
    """Seconds from the start of the episode to its end, without those."""
    return episode.seconds - people_seconds(episode)


def with_people(episode: Episode) -> bool:
    """Whether anybody wrote in the place of a model, or decided about a call."""
    return any(trace.person is not None or trace.approval is not None for trace in episode.traces)


def waits_for_people(episode: Episode) -> list[Interval]:
    """These seconds as intervals, in order; none where nobody was asked."""
    people = _union(interval for trace in episode.traces for interval in _of_people(trace))
    return _without(people, _union(i for trace in episode.traces for i in _at_work(trace))) if people else []


def seconds_of_people(trace: Trace, waits: Iterable[Interval]) -> float:
    """How much of an agent's life people took: all of a person's, and of others what lies in the episode's waits."""
    if trace.person is not None:
        return trace.end - trace.start
    return sum(max(0.0, min(trace.end, end) - max(trace.start, start)) for start, end in waits)


def _of_people(trace: Trace) -> Iterator[Interval]:
    if trace.person is not None:
        yield trace.start, trace.end
    if trace.approval is not None:
        yield trace.approval.start, trace.approval.end


def _at_work(trace: Trace) -> Iterator[Interval]:
    """When a model decoded, or a tool ran. Code that forks waits for its forks, and does nothing itself."""
    if trace.model is not None:
        for span in trace.spans:
            if span.origin is Origin.SAMPLED and span.start is not None and span.end is not None:
                yield span.start, span.end
    elif trace.person is None and trace.parent is not None and not trace.forks:
        yield trace.start if trace.approval is None else max(trace.start, trace.approval.end), trace.end


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same moments, in order and apart."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        elif start < end:
            found.append((start, end))
    return found


def _without(intervals: list[Interval], others: list[Interval]) -> list[Interval]:
    """The moments of the one that are not in the other; both are in order and apart."""
    found: list[Interval] = []
    for start, end in intervals:
        for begin, over in others:
            if over <= start:
                continue
            if begin >= end:
                break
            if start < begin:
                found.append((start, begin))
            start = over
        if start < end:
            found.append((start, end))
    return found


def _length(intervals: Iterable[Interval]) -> float:
    return sum(end - start for start, end in intervals)
