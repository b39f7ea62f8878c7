"""Episodes as Chrome trace events over seconds, for ui.perfetto.dev.

Each episode is a process and each agent a track. Slices on a track never overlap. Arrows are forks and joins. A counter
shows the number of agents that decode. The critical path (in decoding steps, Eq. 4) has its own track.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any

from orgthink.record.episode import EdgeKind, Episode, Origin, Trace
from orgthink.view.layout import Arrow, Bar, Layout, Wait, layout

Event = dict[str, Any]

CRITICAL = 0
"""Track of the critical path. The tracks of agents follow from 1."""

_EXCERPT = 400
"""Largest number of characters of text in a slice."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A stretch on a track."""

    name: str
    """Label of the slice."""
    category: str
    """`decode`, `person`, `wait`, `none` (an agent that decoded nothing) or `critical`."""
    start: int
    """Start in microseconds."""
    end: int
    """End in microseconds, after the start."""
    args: dict[str, Any]
    """Details that the viewer shows after a click."""


def trace(episodes: Iterable[Episode]) -> dict[str, Any]:
    """A JSON object in the trace-event format. Every episode starts at 0 microseconds."""
    events = [event for pid, episode in enumerate(episodes, 1) for event in _events(episode, pid)]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _events(episode: Episode, pid: int) -> Iterator[Event]:
    picture = layout(episode)
    tracks = _tracks(episode, picture)
    starts = {agent: [s.start for s in slices] for agent, slices in tracks.items()}
    number = {t.agent: tid for tid, t in enumerate(episode.traces, 1)}
    traces = {t.agent: t for t in episode.traces}
    critical = list(_apart(_decode(traces[bar.agent], bar, bar.agent, "critical") for bar in picture.critical))
    yield _meta("process_name", pid, CRITICAL, episode.id)
    yield _meta("thread_name", pid, CRITICAL, "critical path")
    for agent, tid in number.items():
        yield _meta("thread_name", pid, tid, agent)
    for tid, slices in ((CRITICAL, critical), *((number[agent], tracks[agent]) for agent in number)):
        yield _event("M", pid, tid, name="thread_sort_index", args={"sort_index": tid})
        for s in slices:
            times = {"ts": s.start, "dur": s.end - s.start}
            yield _event("X", pid, tid, name=s.name, cat=s.category, args=s.args, **times)
    for n, arrow in enumerate(picture.arrows):
        yield from _flow(arrow, pid, number, tracks, starts, f"{pid}.{n}")
    yield from _active(tracks, pid)


def _tracks(episode: Episode, picture: Layout) -> dict[str, list[Slice]]:
    """The slices of each agent, which do not overlap."""
    bars: defaultdict[str, list[Bar]] = defaultdict(list)
    waits: defaultdict[str, list[Wait]] = defaultdict(list)
    for bar in picture.bars:
        bars[bar.agent].append(bar)
    for wait in picture.waits:
        waits[wait.agent].append(wait)
    return {t.agent: list(_apart(_slices(t, picture, bars[t.agent], waits[t.agent]))) for t in episode.traces}


def _slices(trace: Trace, picture: Layout, bars: list[Bar], waits: list[Wait]) -> list[Slice]:
    """Slices of an agent's decoding, of a person's writing, and of waiting, in order of time. An agent without any gets
    one slice `none`."""
    slices = [_decode(trace, bar, f"decode {bar.own[1] - bar.own[0]}", "decode") for bar in bars]
    for span in trace.spans:
        if span.origin is Origin.WRITTEN and span.start is not None and span.end is not None:
            args = {"text": span.text[:_EXCERPT]}
            slices.append(Slice(f"{trace.person} writes", "person", _micro(span.start), _micro(span.end), args))
    for wait in waits:
        start, end = map(_micro, wait.seconds)
        if start < end:
            slices.append(Slice(f"wait for {wait.child}", "wait", start, end, {}))
    if not slices:
        start, end = map(_micro, picture.lives[trace.agent].seconds)
        slices.append(Slice(trace.error or str(trace.status), "none", start, end, {"stop": str(trace.stop)}))
    return sorted(slices, key=lambda s: (s.start, s.end))


def _decode(trace: Trace, bar: Bar, name: str, category: str) -> Slice:
    start, end = map(_micro, bar.seconds)
    args = {"steps": f"{bar.own[0]}–{bar.own[1]}", "tokens": bar.own[1] - bar.own[0]}
    if category == "decode":
        args["text"] = trace.spans[bar.span].text[:_EXCERPT]
    return Slice(name, category, start, end, args)


def _apart(slices: Iterable[Slice]) -> Iterator[Slice]:
    """Make each slice at least one microsecond long, and start it no earlier than the end of the slice before."""
    free = 0
    for s in slices:
        start = max(s.start, free)
        free = max(s.end, start + 1)
        yield Slice(s.name, s.category, start, free, s.args)


def _flow(
    arrow: Arrow,
    pid: int,
    number: dict[str, int],
    tracks: dict[str, list[Slice]],
    starts: dict[str, list[int]],
    key: str,
) -> Iterator[Event]:
    """The two events of an arrow. Each is within a slice of its track."""
    parent, child, at = tracks[arrow.parent], tracks[arrow.child], _micro(arrow.seconds)
    if arrow.kind is EdgeKind.FORK:
        begun = max(bisect_right(starts[arrow.parent], at), 1)
        source = number[arrow.parent], _inside(parent[begun - 1], at)
        target = number[arrow.child], child[0].start
    else:
        source = number[arrow.child], child[-1].end - 1
        later = bisect_left(starts[arrow.parent], at)
        target = number[arrow.parent], parent[later].start if later < len(parent) else _inside(parent[-1], at)
    shared = {"name": f"{arrow.kind} {arrow.key}", "cat": arrow.kind, "id": key}
    yield _event("s", pid, source[0], ts=min(source[1], target[1]), **shared)
    yield _event("f", pid, target[0], ts=target[1], bp="e", **shared)


def _inside(within: Slice, at: int) -> int:
    """The time `at`, moved into a slice."""
    return max(within.start, min(at, within.end - 1))


def _active(tracks: dict[str, list[Slice]], pid: int) -> Iterator[Event]:
    """A counter event for each change of the number of agents that decode."""
    decoding = [s for slices in tracks.values() for s in slices if s.category == "decode"]
    changes = sorted([(s.start, 1) for s in decoding] + [(s.end, -1) for s in decoding])
    moments = [(at, sum(change for _, change in group)) for at, group in groupby(changes, key=lambda c: c[0])]
    counts = accumulate(change for _, change in moments)
    for (at, change), count in zip(moments, counts, strict=True):
        if change:
            yield _event("C", pid, CRITICAL, name="agents decoding", ts=at, args={"agents": count})


def _meta(name: str, pid: int, tid: int, text: str) -> Event:
    return _event("M", pid, tid, name=name, args={"name": text})


def _event(phase: str, pid: int, tid: int, **fields: Any) -> Event:
    return {"ph": phase, "pid": pid, "tid": tid, **fields}


def _micro(seconds: float) -> int:
    return round(seconds * 1e6)
