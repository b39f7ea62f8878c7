"""What holds in every episode beyond the types of its fields. Whatever measures an episode relies on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple

from orgthink.record.episode import EdgeKind, Episode, Span, Trace, is_logprob

LONGEST = 1e12
"""Bound of times in seconds and of costs; sums of more would lose all digits."""

MOST_REQUIRED = 10_000
"""Most solutions that a problem may ask for: a table has a column for each."""


def require_integrity(episode: Episode) -> None:
    """ValueError unless the traces are a tree in order, edges are of its agents, and numbers can be added up."""
    wrong = next(_wrong(episode), None)
    if wrong is not None:
        raise ValueError(wrong if len(wrong) <= 200 else f"{wrong[:200]}…")


def _wrong(episode: Episode) -> Iterator[str]:
    """What is wrong, one by one."""
    if not episode.traces:
        yield "it has no traces"
    yield from _wrong_tree(episode)
    agents = {trace.agent for trace in episode.traces}
    for trace in episode.traces:
        if any(span.tokens < 0 for span in trace.spans):
            yield f"a span of agent {trace.agent!r} has fewer than 0 tokens"
        if not all(0 <= count <= LONGEST for span in trace.spans for count in _billed(span)):
            yield f"a request of agent {trace.agent!r} was billed a count that is none"
        if not all(is_logprob(number) for span in trace.spans for number in span.logprobs or ()):
            yield f"a log-probability is not one, in a span of agent {trace.agent!r}"
        if unknown := {span.source for span in trace.spans if span.source is not None} - agents:
            yield f"agent {trace.agent!r} was given the words of the unknown agent {unknown.pop()!r}"
    if episode.capacity < 1 or not all(-LONGEST <= count <= LONGEST for count in _counts(episode)):
        yield f"a count is none, or more than {LONGEST:g}"
    if any(number is not None and not -LONGEST <= number <= LONGEST for number in _numbers(episode)):
        kinds = "a time, a cost or a setting of the sampling"
        yield f"{kinds} is not a number from {-LONGEST:g} to {LONGEST:g}"
    demands = [episode.problem.required, *([episode.grade.required] if episode.grade else [])]
    if not all(1 <= required <= MOST_REQUIRED for required in demands):
        yield f"required: a problem asks for 1 to {MOST_REQUIRED} solutions"


def _wrong_tree(episode: Episode) -> Iterator[str]:
    known: set[str] = set()
    forked: dict[str, str] = {}
    """Children so far, and who forked them."""
    for trace in episode.traces:
        name = repr(trace.agent)
        if trace.agent in known:
            yield f"two traces are of agent {name}"
        if not known and trace.parent is not None:
            yield f"the first trace, of agent {name}, has a parent"
        if known and (trace.parent not in known or forked.get(trace.agent) != trace.parent):
            yield f"agent {name} was not forked by its parent {trace.parent!r}, as far as the traces before it say"
        known.add(trace.agent)
        for edge in trace.edges:
            if edge.kind is EdgeKind.FORK and (edge.child in forked or edge.child in known):
                yield f"agent {edge.child!r} is forked twice, or after it began"
            if edge.kind is EdgeKind.FORK:
                forked[edge.child] = trace.agent
            elif forked.get(edge.child) != trace.agent:
                yield f"agent {name} joins {edge.child!r}, which it did not fork"
    yield from (f"agent {child!r} has no trace" for child in forked if child not in known)
    for fault in episode.format_faults:
        if fault.agent not in known:
            yield f"a format error is of the unknown agent {fault.agent!r}"


def _counts(episode: Episode) -> Iterator[int]:
    """Whole numbers that are added up, or divided by."""
    yield from (episode.capacity, episode.sample, *(fault.at for fault in episode.format_faults))
    yield from () if episode.grade is None else (episode.grade.correct,)
    for trace in episode.traces:
        yield from (trace.turns, *(span.tokens for span in trace.spans), *(edge.at for edge in trace.edges))


def _billed(span: Span) -> Iterator[int]:
    """Counts of a server."""
    if span.billed is not None:
        yield from (count for count in astuple(span.billed) if count is not None)


def _numbers(episode: Episode) -> Iterator[float | None]:
    """Times and costs."""
    yield episode.seconds
    for trace in episode.traces:
        yield from _numbers_of(trace)


def _numbers_of(trace: Trace) -> Iterator[float | None]:
    yield from (trace.start, trace.end, trace.cost, trace.queued)
    if trace.approval is not None:
        yield from (trace.approval.start, trace.approval.end)
    for span in trace.spans:
        yield from (span.start, span.end)
        if span.sampling is not None:
            yield from (span.sampling.temperature, span.sampling.top_p)
