"""Layout of an episode on two time axes: decoding steps (the latency of Eq. 4) and seconds.

Steps come from `orgthink.measure.latency`. Seconds come from the record; within a span they are spread evenly over its
tokens.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeVar

from orgthink.measure.latency import Recurrence, Stretch, agent_starts, critical_stretches, recurrences, timeline
from orgthink.record.episode import EdgeKind, Episode, Origin, Trace

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


P = TypeVar("P", Bar, Wait, Stretch)


def by_agent(parts: Iterable[P]) -> defaultdict[str, list[P]]:
    """The parts of each agent."""
    found: defaultdict[str, list[P]] = defaultdict(list)
    for part in parts:
        found[part.agent].append(part)
    return found


def layout(episode: Episode) -> Layout:
    """Compute the layout of an episode, in time linear in its agents and spans."""
    traces = {trace.agent: trace for trace in episode.traces}
    decoding = {agent: Decoding(trace) for agent, trace in traces.items()}
    agents = recurrences(episode)
    begins, end = agent_starts(episode, agents), agents[episode.root.agent].latency
    lives = {
        agent: Life(
            _clip((begins[agent], begins[agent] + agents[agent].latency), end),
            (trace.start, max(trace.start, trace.end)),
        )
        for agent, trace in traces.items()
    }
    waits = {
        agent: tuple(_waits(trace, begins[agent], agents[agent], end, traces, decoding[agent]))
        for agent, trace in traces.items()
    }
    return Layout(
        lives=lives,
        bars=tuple(
            _joined(bar for stretch in _whole(episode, end) for bar in decoding[stretch.agent].cut(stretch, end))
        ),
        waits=tuple(wait for agent in traces for wait in waits[agent]),
        arrows=tuple(
            arrow
            for trace in episode.traces
            for arrow in _arrows(trace, lives, waits[trace.agent], decoding[trace.agent])
        ),
        critical=tuple(_joined(bar for s in critical_stretches(episode) for bar in decoding[s.agent].cut(s, end))),
    )


def _clip(steps: Range, end: int) -> Range:
    """A range clipped to the axis, which ends with the critical path."""
    return min(steps[0], end), min(steps[1], end)


class Decoding:
    """The decoding steps of an agent: in which span each is, and when it was. Each is found in logarithmic time."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._spans = [i for i, s in enumerate(trace.spans) if s.origin is Origin.SAMPLED and s.tokens]
        self._ends = list(accumulate(trace.spans[i].tokens for i in self._spans))
        """Own steps done after each of these spans."""

    def span(self, step: int) -> tuple[int, int] | None:
        """Index of the span that holds a step, the last one for steps after the end, and the steps done before it."""
        k = min(bisect_left(self._ends, step), len(self._ends) - 1)
        return (self._spans[k], self._ends[k - 1] if k else 0) if k >= 0 and step > 0 else None

    def moment(self, step: int) -> float:
        """Seconds at which the agent had completed `step` of its own decoding steps."""
        found = self.span(step)
        if found is None:
            return self._trace.start
        index, done = found
        tokens = self._trace.spans[index].tokens
        start, end = self._seconds(index, done)
        return start + (end - start) * min(step - done, tokens) / tokens

    def cut(self, stretch: Stretch, end: int) -> Iterator[Bar]:
        """Split a stretch at the ends of spans."""
        shift = stretch.start - stretch.first
        for k in range(bisect_right(self._ends, stretch.first), len(self._ends)):
            index, done = self._spans[k], self._ends[k - 1] if k else 0
            first, last = max(stretch.first, done), min(stretch.end - shift, self._ends[k])
            if first >= last:
                return
            start, stop = self._seconds(index, done)
            rate = (stop - start) / self._trace.spans[index].tokens
            seconds = start + rate * (first - done), start + rate * (last - done)
            yield Bar(self._trace.agent, index, (first, last), _clip((first + shift, last + shift), end), seconds)

    def _seconds(self, index: int, done: int) -> Range:
        """Seconds in which a span was decoded. Without them in the record, the agent's life is divided by its steps."""
        trace, span = self._trace, self._trace.spans[index]
        if span.start is not None and span.end is not None:
            return span.start, span.end
        rate = (trace.end - trace.start) / self._ends[-1]
        return trace.start + rate * done, trace.start + rate * (done + span.tokens)


def _whole(episode: Episode, end: int) -> Iterator[Stretch]:
    """The timeline, followed by the steps after the end of its axis: they still took seconds."""
    stretches = by_agent(timeline(episode))
    for trace in episode.traces:
        own = stretches[trace.agent]
        yield from own
        done = own[-1].first + own[-1].end - own[-1].start if own else 0
        if done < trace.steps:
            yield Stretch(trace.agent, end, end + trace.steps - done, done)


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


def _waits(
    trace: Trace, begin: int, agent: Recurrence, end: int, traces: Mapping[str, Trace], decoding: Decoding
) -> Iterator[Wait]:
    second = trace.start
    for i, join in enumerate(trace.joins, 1):
        first, last = agent.l[i - 1] + agent.cuts[i] - agent.cuts[i - 1], agent.l[i]
        second = max(second, decoding.moment(join.at))
        back = max(second, traces[join.child].end)
        yield Wait(trace.agent, join.child, _clip((begin + first, begin + last), end), (second, back))
        second = back


def _arrows(trace: Trace, lives: dict[str, Life], waits: tuple[Wait, ...], decoding: Decoding) -> Iterator[Arrow]:
    for fork in trace.forks:
        child = lives[fork.child]
        seconds = min(decoding.moment(fork.at), child.seconds[0]) if fork.at else child.seconds[0]
        yield Arrow(EdgeKind.FORK, trace.agent, fork.child, fork.key, child.steps[0], seconds)
    for join, wait in zip(trace.joins, waits, strict=True):
        yield Arrow(EdgeKind.JOIN, trace.agent, join.child, join.key, wait.steps[1], wait.seconds[1])
