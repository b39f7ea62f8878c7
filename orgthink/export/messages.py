"""What an agent read and wrote as the messages of a chat, with forks and calls as calls of tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from orgthink.record.episode import Edge, EdgeKind, Episode, Origin, Span, Trace


@dataclass(frozen=True, slots=True)
class ChatCall:
    """A fork, as the call of a tool."""

    id: str
    """Agent that was forked."""
    name: str
    """The tool, or `fork` and the role of the agent."""
    key: str
    """Key of the fork."""


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """A message."""

    role: Literal["user", "assistant", "tool"]
    """`tool` for the result of a call."""
    content: str
    """Its text."""
    calls: tuple[ChatCall, ...] = ()
    """What an assistant calls in it."""
    answers: str | None = None
    """Id of the call whose result it is."""
    seconds: float | None = None
    """When it was complete, from the start of the episode; `None` where the record does not say."""
    model: str | None = None
    """Model that wrote it; `None` for people and code."""


def turns(trace: Trace, episode: Episode) -> Iterator[ChatTurn]:
    """The messages of an agent, in order.

    A call stands in the message that it was written in, its result where the agent had joined it. If an agent joined
    several at once, their results stand for the text that repeats them.
    """
    traces = {other.agent: other for other in episode.traces}
    edges, joined, steps = list(trace.edges), list[Edge](), 0
    if not trace.spans and trace.parent is None:
        yield ChatTurn("user", episode.problem.text, seconds=trace.start)
    for index, span in enumerate(trace.spans):
        if not span.origin.own:
            if len(joined) == 1:
                yield ChatTurn("tool", span.text, answers=joined[0].child, seconds=traces[joined[0].child].end)
            elif joined:
                yield from _results(joined, traces)
            else:
                yield ChatTurn("user", span.text, seconds=span.start)
            joined = []
            continue
        yield from _results(joined, traces)
        steps += span.tokens if span.origin is Origin.SAMPLED else 0
        done = [edge for edge in edges if edge.at <= steps]
        if span.origin is Origin.WRITTEN:
            done = _done_by_person(edges, trace.spans[index + 1 :])
        edges, joined = edges[len(done) :], [edge for edge in done if edge.kind is EdgeKind.JOIN]
        yield ChatTurn("assistant", span.text, _calls(done, traces), seconds=span.end, model=trace.model)
    yield from _results(joined, traces)
    if edges:
        yield ChatTurn("assistant", "", _calls(edges, traces))
        yield from _results([edge for edge in edges if edge.kind is EdgeKind.JOIN], traces)
    if trace.is_code and trace.returned is not None:
        yield ChatTurn("assistant", trace.returned, seconds=trace.end)


def _done_by_person(edges: list[Edge], following: Sequence[Span]) -> list[Edge]:
    """What a person did in what they wrote, by the spans that follow: it takes no steps, but they read next what they
    have joined."""
    if not any(span.origin.own for span in following):
        return edges
    read = {span.source for span in takewhile(lambda span: not span.origin.own, following)}
    ends = [n for n, edge in enumerate(edges, 1) if edge.kind is EdgeKind.JOIN and edge.child in read]
    return edges[: max(ends, default=0)]


def _results(joins: Sequence[Edge], traces: dict[str, Trace]) -> Iterator[ChatTurn]:
    for join in joins:
        child = traces[join.child]
        content = child.returned if child.returned is not None else child.error or str(child.status)
        yield ChatTurn("tool", content, answers=join.child, seconds=child.end)


def _calls(edges: Sequence[Edge], traces: dict[str, Trace]) -> tuple[ChatCall, ...]:
    forks = [edge for edge in edges if edge.kind is EdgeKind.FORK]
    return tuple(ChatCall(fork.child, _called(traces[fork.child]), fork.key) for fork in forks)


def _called(child: Trace) -> str:
    return child.role if child.is_code else f"fork {child.role}"
