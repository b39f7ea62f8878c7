"""Layout of an episode on two time axes: decoding steps (the latency of Eq. 4) and seconds.

Steps come from `orgthink.measure.latency`. Seconds come from the record; within a span they are spread evenly over its
tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from orgthink.episode import EdgeKind, Episode, Origin, Trace
from orgthink.measure.latency import Stretch, critical_stretches, timeline

Range = tuple[float, float]
"""Start and end on an axis."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch in which an agent decoded, within one sampled span."""

    agent: str
    """Agent that decoded."""
    span: int
    """Index of the span in the agent's trace."""
    own: tuple[int, int]
    """Number of the agent's own decoding steps before and after the stretch."""
    steps: Range
    """Range in global decoding steps."""
    seconds: Range
    """Range in seconds from the start of the episode."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The time in which a parent waits at a join for its child."""

    agent: str
    """Agent that waits."""
    child: str
    """Agent that it waits for."""
    steps: Range
    """Range in global decoding steps; empty if the child had returned before."""
    seconds: Range
    """Range in seconds from the start of the episode."""


@dataclass(frozen=True, slots=True)
class Arrow:
    """A fork or a join."""

    kind: EdgeKind
    """Kind of the arrow."""
    parent: str
    """Agent that forked or joined."""
    child: str
    """Agent that was forked or joined."""
    key: str
    """Key of the fork."""
    steps: float
    """Time in global decoding steps. A join happens when the parent continues."""
    seconds: float
    """Time in seconds from the start of the episode."""


@dataclass(frozen=True, slots=True)
class Life:
    """The time from an agent's start to its end."""

    steps: Range
    """Range in global decoding steps."""
    seconds: Range
    """Range in seconds from the start of the episode."""


@dataclass(frozen=True, slots=True)
class Layout:
    """All elements of an episode's picture."""

    lives: dict[str, Life]
    """Life of each agent, by name."""
    bars: tuple[Bar, ...]
    """Bars agent by agent, in order of time."""
    waits: tuple[Wait, ...]
    """Waits agent by agent, in order of time."""
    arrows: tuple[Arrow, ...]
    """Arrows agent by agent: forks, then joins."""
    critical: tuple[Bar, ...]
    """Bars of the critical path, from the first decoding step to the last."""


def layout(episode: Episode) -> Layout:
    """Compute the layout of an episode."""
    traces = {trace.agent: trace for trace in episode.traces}
    clock = _Clock(traces)
    clock.run(episode.root, 0)
    end = clock.lives[episode.root.agent][1]
    stretches = _whole(episode, end)
    lives = {
        agent: Life(_clip(clock.lives[agent], end), (trace.start, max(trace.start, trace.end)))
        for agent, trace in traces.items()
    }
    waits = {agent: tuple(_waits(trace, clock.waits[agent], end, traces)) for agent, trace in traces.items()}
    return Layout(
        lives=lives,
        bars=tuple(_joined(bar for stretch in stretches for bar in _cut(traces[stretch.agent], stretch, end))),
        waits=tuple(wait for agent in traces for wait in waits[agent]),
        arrows=tuple(arrow for trace in episode.traces for arrow in _arrows(trace, lives, waits[trace.agent])),
        critical=tuple(_joined(bar for s in critical_stretches(episode) for bar in _cut(traces[s.agent], s, end))),
    )


class _Clock:
    """Follows forks and joins and counts global decoding steps. Agents without tokens are included."""

    def __init__(self, traces: dict[str, Trace]) -> None:
        self._traces = traces
        self.lives: dict[str, tuple[int, int]] = {}
        """Global step at which each agent starts and ends."""
        self.waits: dict[str, list[tuple[int, int]]] = {}
        """Global steps between which each agent waits, one range for each of its joins."""

    def run(self, trace: Trace, begin: int) -> None:
        at, done = begin, 0
        self.waits[trace.agent] = waits = []
        for edge in trace.edges:
            at, done = at + edge.at - done, edge.at
            if edge.kind is EdgeKind.FORK:
                self.run(self._traces[edge.child], at)
            else:
                waits.append((at, max(at, self.lives[edge.child][1])))
                at = waits[-1][1]
        self.lives[trace.agent] = begin, at + trace.steps - done


def _clip(steps: tuple[int, int], end: int) -> Range:
    """A range clipped to the axis, which ends with the critical path."""
    return min(steps[0], end), min(steps[1], end)


def moment(trace: Trace, step: int) -> float:
    """Seconds at which an agent had completed `step` of its own decoding steps."""
    done, at = 0, trace.start
    for span in trace.spans:
        if span.origin is Origin.SAMPLED and span.tokens and done < step:
            part = min(step - done, span.tokens)
            start, end = _seconds(trace, done, span.start, span.end, span.tokens)
            at = start + (end - start) * part / span.tokens
            done += part
    return at


def _seconds(trace: Trace, done: int, start: float | None, end: float | None, tokens: int) -> Range:
    """Seconds in which a span was decoded. Without them in the record, the agent's life is divided by its steps."""
    if start is not None and end is not None:
        return start, end
    rate = (trace.end - trace.start) / trace.steps
    return trace.start + rate * done, trace.start + rate * (done + tokens)


def _whole(episode: Episode, end: int) -> Iterator[Stretch]:
    """The timeline, followed by the steps after the end of its axis: they still took seconds."""
    stretches = timeline(episode)
    for trace in episode.traces:
        own = [stretch for stretch in stretches if stretch.agent == trace.agent]
        yield from own
        done = own[-1].first + own[-1].end - own[-1].start if own else 0
        if done < trace.steps:
            yield Stretch(trace.agent, end, end + trace.steps - done, done)


def _cut(trace: Trace, stretch: Stretch, end: int) -> Iterator[Bar]:
    """Split a stretch at the ends of spans."""
    done, shift = 0, stretch.start - stretch.first
    for index, span in enumerate(trace.spans):
        if span.origin is not Origin.SAMPLED:
            continue
        first, last = max(stretch.first, done), min(stretch.end - shift, done + span.tokens)
        if first < last:
            start, stop = _seconds(trace, done, span.start, span.end, span.tokens)
            rate = (stop - start) / span.tokens
            seconds = start + rate * (first - done), start + rate * (last - done)
            yield Bar(trace.agent, index, (first, last), _clip((first + shift, last + shift), end), seconds)
        done += span.tokens


def _joined(bars: Iterable[Bar]) -> Iterator[Bar]:
    """Merge consecutive bars of the same span if there is no pause between them."""
    whole: Bar | None = None
    for bar in bars:
        if whole and (whole.agent, whole.span, whole.steps[1]) == (bar.agent, bar.span, bar.steps[0]):
            whole = replace(
                whole,
                own=(whole.own[0], bar.own[1]),
                steps=(whole.steps[0], bar.steps[1]),
                seconds=(whole.seconds[0], bar.seconds[1]),
            )
            continue
        if whole:
            yield whole
        whole = bar
    if whole:
        yield whole


def _waits(trace: Trace, steps: Iterable[tuple[int, int]], end: int, traces: dict[str, Trace]) -> Iterator[Wait]:
    second = trace.start
    for join, wait in zip(trace.joins, steps, strict=True):
        second = max(second, moment(trace, join.at))
        back = max(second, traces[join.child].end)
        yield Wait(trace.agent, join.child, _clip(wait, end), (second, back))
        second = back


def _arrows(trace: Trace, lives: dict[str, Life], waits: tuple[Wait, ...]) -> Iterator[Arrow]:
    for fork in trace.forks:
        child = lives[fork.child]
        seconds = min(moment(trace, fork.at), child.seconds[0]) if fork.at else child.seconds[0]
        yield Arrow(EdgeKind.FORK, trace.agent, fork.child, fork.key, child.steps[0], seconds)
    for join, wait in zip(trace.joins, waits, strict=True):
        yield Arrow(EdgeKind.JOIN, trace.agent, join.child, join.key, wait.steps[1], wait.seconds[1])
