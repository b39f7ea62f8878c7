"""An episode as a tree of OpenTelemetry's spans: a pure function of the record, with the same ids whenever it is made.

    invoke_workflow asyncthink           the episode
      invoke_agent organizer             an agent
        chat MODEL                       a stretch that it decoded
        execute_tool fork worker         a fork: from its tag to the end of the child
          invoke_agent worker            the child
        execute_tool join                the wait at a join, with a link to the child
        execute_tool python              a fork of code: the call of a tool

`conventions` says what stands in each. A span lasts until everything below it has ended.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from orgthink.export import conventions
from orgthink.export.conventions import Description, Value
from orgthink.measure.latency import critical_stretches
from orgthink.record.episode import EdgeKind, Episode, Trace
from orgthink.view.layout import Range, Wait, layout

LATEST = (1 << 63) - 1
"""Largest number of nanoseconds that every reader can hold."""


@dataclass(frozen=True, slots=True)
class TraceSpan:
    """A span of OpenTelemetry that has ended."""

    trace: int
    """Id of its trace, 128 bits: that of the episode."""
    id: int
    """Its own id, 64 bits."""
    parent: int | None
    """Id of the span around it; `None` for that of the episode."""
    name: str
    """Operation, and what it is applied to."""
    kind: Literal["internal", "client"]
    """`client` for a request to a model."""
    start: int
    """Nanoseconds since 1970, UTC."""
    end: int
    """Nanoseconds since 1970, UTC; not before the start."""
    attributes: dict[str, Value]
    """By the names of the conventions, or `orgthink.*`."""
    link: int | None = None
    """Id of the span, in the same trace, whose result it waited for."""
    error: str | None = None
    """What went wrong, or an empty text if that is left out; `None` if nothing did."""


def trace_spans(episode: Episode, *, run: str = "", began: float = 0.0, content: bool = False) -> list[TraceSpan]:
    """The spans of an episode, parents before children.

    `run` is the name of the run: the ids depend on it and on the episode's id. `began` is the time at which the episode
    began, in seconds since 1970. With `content` the texts of prompts, replies, results and errors are there too.
    """
    return list(_Tree(episode, run, round(began * 1e9), content).spans())


class _Tree:
    def __init__(self, episode: Episode, run: str, zero: int, content: bool) -> None:
        self._episode, self._run, self._zero, self._content = episode, run, zero, content
        self._trace = self._id("trace", bits=128)
        self._traces = {trace.agent: trace for trace in episode.traces}
        self._keys = {fork.child: fork.key for trace in episode.traces for fork in trace.forks}
        picture = layout(episode)
        self._lives = {agent: life.seconds for agent, life in picture.lives.items()}
        self._forked = {arrow.child: arrow.seconds for arrow in picture.arrows if arrow.kind is EdgeKind.FORK}
        self._waits: defaultdict[str, list[Wait]] = defaultdict(list)
        """Of each agent, one for each of its joins."""
        for wait in picture.waits:
            self._waits[wait.agent].append(wait)
        self._chats: defaultdict[str, dict[int, Range]] = defaultdict(dict)
        """Seconds of what each agent decoded, by the index of the span."""
        for bar in picture.bars:
            chats = self._chats[bar.agent]
            chats[bar.span] = _hull([chats.get(bar.span, bar.seconds), bar.seconds])
        self._critical: Counter[str] = Counter()
        for stretch in critical_stretches(episode):
            self._critical[stretch.agent] += stretch.end - stretch.start
        self._extents = self._all_extents()

    def _all_extents(self) -> dict[str, Range]:
        """From the start of each agent to its end, or to the end of the last that it forked."""
        extents: dict[str, Range] = {}
        for trace in reversed(self._episode.traces):  # children come after their parents
            waits = (wait.seconds for wait in self._waits[trace.agent])
            forks = (self._with_fork(fork.child, extents[fork.child]) for fork in trace.forks)
            parts = [self._lives[trace.agent], *self._chats[trace.agent].values(), *waits, *forks]
            extents[trace.agent] = _hull(parts)
        return extents

    def _with_fork(self, child: str, extent: Range) -> Range:
        return _hull([(self._forked[child], self._forked[child]), extent])

    def spans(self) -> Iterator[TraceSpan]:
        episode = self._episode
        seconds = _hull([(0.0, max(0.0, episode.seconds)), self._extents[episode.root.agent]])
        yield self._span(("workflow",), None, seconds, conventions.workflow(episode, self._run))
        for trace in episode.traces:
            yield from self._life(trace)
            for index, chat in conventions.chats(trace):
                seconds = self._chats[trace.agent][index]
                yield self._span(("chat", trace.agent, index), ("agent", trace.agent), seconds, chat)
            for number, (edge, wait) in enumerate(zip(trace.joins, self._waits[trace.agent], strict=True)):
                key, link = ("join", trace.agent, number), ("agent", edge.child)
                yield self._span(key, ("agent", trace.agent), wait.seconds, conventions.join(edge, trace), link)

    def _life(self, trace: Trace) -> Iterator[TraceSpan]:
        """An agent, within its fork; the call of a tool is one span with the code that does it."""
        key, extent, critical = ("agent", trace.agent), self._extents[trace.agent], self._critical[trace.agent]
        if trace.parent is None:
            yield self._span(key, ("workflow",), extent, conventions.agent(trace, critical))
            return
        forker, name, seconds = (
            self._traces[trace.parent],
            self._keys[trace.agent],
            self._with_fork(trace.agent, extent),
        )
        around = ("agent", forker.agent)
        if trace.is_code:
            yield self._span(key, around, seconds, conventions.tool(trace, name, forker, critical))
        else:
            fork = ("fork", trace.agent)
            yield self._span(fork, around, seconds, conventions.fork(trace, name, forker))
            yield self._span(key, fork, extent, conventions.agent(trace, critical))

    def _span(
        self,
        key: Sequence[object],
        parent: Sequence[object] | None,
        seconds: Range,
        says: Description,
        link: Sequence[object] | None = None,
    ) -> TraceSpan:
        texts = says.texts if self._content else {}
        found = {**says.attributes, **texts, "error.type": says.failed, "gen_ai.conversation.id": self._episode.id}
        return TraceSpan(
            self._trace,
            self._id(*key),
            None if parent is None else self._id(*parent),
            says.name,
            says.kind,
            self._moment(seconds[0]),
            self._moment(seconds[1]),
            {name: value for name, value in found.items() if value is not None},
            None if link is None else self._id(*link),
            None if says.failed is None else says.message or "" if self._content else "",
        )

    def _moment(self, seconds: float) -> int:
        return min(max(0, self._zero + round(seconds * 1e9)), LATEST)

    def _id(self, *key: object, bits: int = 64) -> int:
        """A number that is never 0: OpenTelemetry takes that for none."""
        name = repr((self._run, self._episode.id, *key)).encode()
        return int.from_bytes(sha256(name).digest()[: bits // 8], "big") or 1


def _hull(ranges: Iterable[Range]) -> Range:
    """The shortest range that holds them all."""
    starts, ends = zip(*ranges, strict=True)
    return min(starts), max(*starts, *ends)
