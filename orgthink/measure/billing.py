"""What requests to servers cost: tokens by the servers' counts, and dollars by a list of prices.

A request is a sampled span. Where its server reported no tokens, our own counts are the estimate: the tokens of all
spans before it and its own. Servers read a conversation again at every request, so the input of an agent is counted as
often as it was sent. Requests that failed before their first token are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

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
"""By the name of the model, as the record has it."""


class Dollars(NamedTuple):
    """What requests cost."""

    reported: float = 0.0
    """Those whose tokens the server reported."""
    estimated: float = 0.0
    """All others, by our own counts."""

    @property
    def total(self) -> float:
        """All of them."""
        return self.reported + self.estimated


def dollars(traces: Iterable[Trace], prices: Prices) -> Dollars | None:
    """What the requests of these agents cost; `None` if the price of one is not known."""
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
    """Dollars of an episode; `None` if the price of a model is not known."""
    found = dollars(episode.traces, prices)
    return None if found is None else found.total


def reports(traces: Iterable[Trace]) -> list[Billed]:
    """What servers reported, request by request."""
    return [span.billed for trace in traces for span in trace.spans if span.billed is not None]


def context_tokens(trace: Trace) -> Iterator[tuple[Span, int]]:
    """The spans of a context that were not sampled, and the tokens of each, which count once however often it was sent.

    Of a prompt without ids they are what its server says it read, if it says so of the first request; later requests
    say too little, for thoughts are read again or not. Of other texts without ids they are estimated.
    """
    first = trace.spans[1].billed if len(trace.spans) > 1 else None
    for at, span in enumerate(trace.spans):
        if span.origin is not Origin.SAMPLED:
            reported = first.input if first is not None and at == 0 and span.token_ids is None else None
            yield span, _length(span) if reported is None else reported


class _Tokens(NamedTuple):
    """Of a request."""

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
    known = span.token_ids is not None or span.origin is Origin.SAMPLED
    return span.tokens if known else likely_tokens(span.text)


def _cost(tokens: _Tokens, price: Price) -> float:
    cached = min(tokens.cached, tokens.input)
    read = (tokens.input - cached) * price.input + cached * (price.input if price.cached is None else price.cached)
    return (read + tokens.output * price.output) / MILLION
