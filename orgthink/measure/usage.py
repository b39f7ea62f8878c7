"""Tokens, calls, seconds, cost and dollars of episodes, by role.

Dollars follow a price list. A request is a sampled span. Servers read a conversation again at every request, so its
input counts at every request. Where a server reported no token counts, ours are the estimate. Requests that failed
before their first token are not counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from orgthink.measure.latency import critical_stretches
from orgthink.record.episode import Billed, Episode, Origin, Span, Trace, likely_tokens
from orgthink.util.errors import require_at_least

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars for a million tokens of a model."""

    input: float
    """For tokens that it reads."""
    output: float
    """For tokens that it samples, thoughts included."""
    cached: float | None = None
    """For tokens that it reads from the server's cache; `None`: as for others."""

    def __post_init__(self) -> None:
        require_at_least(0, self, "input", "output", "cached")


Prices = Mapping[str, Price]
"""Price by the name of the model, as in the record."""


class Dollars(NamedTuple):
    """Dollars of requests."""

    reported: float = 0.0
    """Of requests whose tokens the server reported."""
    estimated: float = 0.0
    """Of all others, by our own counts."""

    @property
    def total(self) -> float:
        """All of them."""
        return self.reported + self.estimated


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of the agents of one role."""

    role: str
    """`organizer`, `worker`, …"""
    agents: int
    """Agents that had the role."""
    calls: int
    """Times they asked an engine."""
    prompt_tokens: int
    """Tokens of their prompts, each counted once however often sent; without ids as servers say, else estimated."""
    sampled_tokens: int
    """Tokens they decoded."""
    injected_tokens: int
    """Tokens the runtime appended to their contexts; without ids estimated."""
    seconds: float
    """From start to end of each agent, waiting for other agents included, added up."""
    queued: float
    """Of these seconds, those in which their requests waited for a place at a client of ours."""
    critical_steps: int
    """Their decoding steps on the critical path."""
    share: float | None
    """Of the critical path, 0 to 1; `None` if that has no steps."""
    cost: float | None
    """Money or cost units; `None` unless it is known for every agent of the role."""
    dollars: float | None
    """What all calls cost, by the prices; `None` without the price of every model."""
    dollars_estimated: float | None
    """Of these, for calls that were not reported: by our own counts."""


def usage(episodes: Iterable[Episode], prices: Prices | None = None) -> list[Usage]:
    """One row a role, in the order the roles first appear."""
    traces: defaultdict[str, list[Trace]] = defaultdict(list)
    critical: Counter[str] = Counter()
    for episode in episodes:
        roles = {trace.agent: trace.role for trace in episode.traces}
        for trace in episode.traces:
            traces[trace.role].append(trace)
        for stretch in critical_stretches(episode):
            critical[roles[stretch.agent]] += stretch.end - stretch.start
    total = critical.total()
    return [_row(role, of_role, critical[role], total, prices) for role, of_role in traces.items()]


def sampled_tokens(episode: Episode) -> int:
    """Tokens that all agents decoded, on the critical path or not."""
    return sum(trace.steps for trace in episode.traces)


def replies(episode: Episode) -> int:
    """Replies of models, a manager's included: one for each request to an engine, so an organizer that continues after
    a Join gives another reply. ParaManager's cost units are `orgthink.measure.orchestration.cost`."""
    return sum(trace.turns for trace in episode.traces if trace.model is not None)


def forks(episode: Episode) -> int:
    """Forks by models; those of an organization's own code are not counted."""
    return sum(len(trace.forks) for trace in episode.traces if trace.model is not None)


def forked(episode: Episode) -> bool:
    """Whether a model forked."""
    return forks(episode) > 0


def _row(role: str, traces: list[Trace], critical: int, total: int, prices: Prices | None) -> Usage:
    costs = [trace.cost for trace in traces]
    paid = dollars(traces, prices) if prices else None
    return Usage(
        role=role,
        agents=len(traces),
        calls=sum(trace.turns for trace in traces),
        prompt_tokens=_context_tokens(traces, Origin.PROMPT),
        sampled_tokens=sum(trace.steps for trace in traces),
        injected_tokens=_context_tokens(traces, Origin.INJECTED),
        seconds=sum(trace.end - trace.start for trace in traces),
        queued=sum(trace.queued for trace in traces),
        critical_steps=critical,
        share=critical / total if total else None,
        cost=None if None in costs or not costs else sum(cost for cost in costs if cost is not None),
        dollars=None if paid is None else paid.total,
        dollars_estimated=None if paid is None else paid.estimated,
    )


def _context_tokens(traces: list[Trace], origin: Origin) -> int:
    return sum(tokens for trace in traces for span, tokens in context_tokens(trace) if span.origin is origin)


def dollars(traces: Iterable[Trace], prices: Prices) -> Dollars | None:
    """Dollars of the requests of these agents; `None` if the price of a model is unknown."""
    reported = estimated = 0.0
    for trace in traces:
        for tokens, known in _requests(trace):
            price = prices.get(trace.model or "")
            if price is None:
                return None
            cost = _cost(tokens, price)
            reported, estimated = (reported + cost, estimated) if known else (reported, estimated + cost)
    return Dollars(reported, estimated)


def spent(episode: Episode, prices: Prices) -> float | None:
    """Dollars of an episode; `None` if the price of a model is unknown."""
    found = dollars(episode.traces, prices)
    return None if found is None else found.total


def context_tokens(trace: Trace) -> Iterator[tuple[Span, int]]:
    """The spans of a context that were not sampled, with their tokens, each counted once.

    A prompt without ids has the server's count of its first request, if there is one. Other texts without ids are
    estimated.
    """
    first = trace.spans[1].billed if len(trace.spans) > 1 else None
    for at, span in enumerate(trace.spans):
        if span.origin is not Origin.SAMPLED:
            reported = first.input if first is not None and at == 0 and span.token_ids is None else None
            yield span, _length(span) if reported is None else reported


class _Tokens(NamedTuple):
    """Token counts of a request."""

    input: int
    cached: int
    output: int


def _requests(trace: Trace) -> Iterator[tuple[_Tokens, bool]]:
    """The tokens of each request, and whether the server reported them."""
    context = 0
    for span in trace.spans:
        if span.origin is Origin.SAMPLED:
            billed = span.billed or Billed()
            read = context if billed.input is None else billed.input
            output = span.tokens if billed.output is None else billed.output
            yield _Tokens(read, billed.cached or 0, output), None not in (billed.input, billed.output)
        context += _length(span)


def _length(span: Span) -> int:
    """Tokens of a span in a later prompt. Without ids the words of text that was not sampled have been counted."""
    return span.tokens if span.token_ids is not None or span.origin is Origin.SAMPLED else likely_tokens(span.text)


def _cost(tokens: _Tokens, price: Price) -> float:
    cached = min(tokens.cached, tokens.input)
    read = (tokens.input - cached) * price.input + cached * (price.input if price.cached is None else price.cached)
    return (read + tokens.output * price.output) / MILLION
