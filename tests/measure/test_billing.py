"""Dollars, against a bill added up by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.measure.summary import summarise
from orgthink.measure.usage import Dollars, Price, context_tokens, dollars, spent, usage
from orgthink.record.episode import CONTROLLER, Billed, Edge, EdgeKind, Episode, Origin, Problem, Span, Trace

PRICES = {"large": Price(input=2.0, output=8.0, cached=0.5), "small": Price(1.0, 4.0)}


def sampled(tokens: int, billed: Billed | None = None) -> Span:
    return Span(Origin.SAMPLED, "…", tokens, billed=billed)


def prompt(tokens: int) -> Span:
    return Span(Origin.PROMPT, "", tokens, tuple(range(tokens)))


def injected(text: str) -> Span:
    return Span(Origin.INJECTED, text, len(text.split()))


ORGANIZER = Trace(
    "organizer", "organizer", None,
    (prompt(100), sampled(10, Billed(120, 80, 15, 5)), injected("abc " * 6), sampled(20)),
    edges=(Edge(EdgeKind.FORK, "1", "worker", 5), Edge(EdgeKind.FORK, "2", CONTROLLER, 5)), model="large", turns=2,
)  # fmt: skip
WORKER = Trace("worker", "worker", "organizer", (prompt(50), sampled(7, Billed(60, None, 7))), model="small", turns=1)
CODE = Trace(CONTROLLER, CONTROLLER, "organizer", ())
EPISODE = Episode("p|a|0", Problem("p", "t", ""), "a", 2, (ORGANIZER, WORKER, CODE))

REPORTED = ((120 - 80) * 2.0 + 80 * 0.5 + 15 * 8.0) / 1e6
ESTIMATED = ((100 + 10 + 24 / 3) * 2.0 + 20 * 8.0) / 1e6
"""The second request read the prompt, the first reply and 24 injected bytes."""
WORKERS = (60 * 1.0 + 7 * 4.0) / 1e6


def test_by_hand() -> None:
    assert dollars([ORGANIZER], PRICES) == pytest.approx(Dollars(REPORTED, ESTIMATED))
    assert dollars([WORKER], PRICES) == pytest.approx(Dollars(WORKERS, 0))
    assert spent(EPISODE, PRICES) == pytest.approx(REPORTED + ESTIMATED + WORKERS)
    assert dollars([CODE], {}) == Dollars(0, 0), "code costs nothing"


def test_without_the_price_of_a_model_nothing_is_known() -> None:
    assert spent(EPISODE, {"large": PRICES["large"]}) is None
    assert dollars([replace(WORKER, spans=WORKER.spans[:1])], {}) == Dollars(0, 0), "it never sent a request"


def test_half_a_report_is_an_estimate() -> None:
    half = replace(WORKER, spans=(prompt(50), sampled(7, Billed(output=9))))
    assert dollars([half], PRICES) == pytest.approx(Dollars(0, (50 * 1.0 + 9 * 4.0) / 1e6))


def test_roles_and_organizations() -> None:
    organizer, worker, code = usage([EPISODE], PRICES)
    assert organizer.dollars == pytest.approx(REPORTED + ESTIMATED)
    assert organizer.dollars_estimated == pytest.approx(ESTIMATED)
    assert (worker.dollars, code.dollars) == (pytest.approx(WORKERS), 0)
    row = summarise([EPISODE, replace(EPISODE, id="p|a|1")], prices=PRICES)["a"]
    assert row["dollars"]["mean"] == pytest.approx(REPORTED + ESTIMATED + WORKERS)
    assert row["dollars_total"] == pytest.approx(2 * (REPORTED + ESTIMATED + WORKERS))
    assert row["dollars_estimated"] == pytest.approx(2 * ESTIMATED)
    assert not any("dollars" in name for name in summarise([EPISODE])["a"])
    assert usage([EPISODE])[0].dollars is None


WORDLESS = Span(Origin.PROMPT, "七" * 3000, 1)
"""A prompt of one word, as an engine without ids counts, and of 9,000 bytes."""


@pytest.mark.parametrize(
    ("spans", "tokens"),
    [
        ((WORDLESS, sampled(9, Billed(2100, output=9))), [2100]),
        ((WORDLESS, sampled(9, Billed(output=9))), [3000]),
        ((WORDLESS, sampled(9)), [3000]),
        ((WORDLESS,), [3000]),
        ((WORDLESS, sampled(9, Billed(2100)), injected("七" * 30), sampled(9, Billed(2200))), [2100, 30]),
        ((WORDLESS, injected("七" * 30), sampled(9, Billed(2200))), [3000, 30]),
        ((prompt(50), sampled(7, Billed(60))), [50]),
        ((), []),
    ],
)
def test_tokens_of_a_context_that_a_server_read(spans: tuple[Span, ...], tokens: list[int]) -> None:
    """Those of ids are known. Without ids the server's count of the first request is, else they are estimated."""
    trace = replace(WORKER, parent=None, spans=spans)
    assert [count for _, count in context_tokens(trace)] == tokens
    episode = replace(EPISODE, traces=(trace,))
    (row,) = usage([episode])
    assert row.prompt_tokens + row.injected_tokens == sum(tokens)
    assert row.sampled_tokens == trace.steps


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))))
def test_a_bill_is_the_sum_of_its_requests_and_the_cache_saves(requests: list[tuple[int, int, int]]) -> None:
    spans = [sampled(1, Billed(read, min(cached, read), output)) for read, cached, output in requests]
    each = [dollars([replace(ORGANIZER, spans=(span,))], PRICES) for span in spans]
    whole = dollars([replace(ORGANIZER, spans=tuple(spans))], PRICES)
    assert whole is not None and whole.estimated == 0
    assert whole.reported == pytest.approx(sum(one.reported for one in each if one))
    dear = dollars([replace(ORGANIZER, spans=tuple(spans))], {"large": Price(2.0, 8.0)})
    assert dear is not None and dear.total >= whole.total


@pytest.mark.parametrize("wrong", [{"input": -1}, {"output": float("nan")}, {"cached": float("inf")}])
def test_a_price_is_a_number_from_0_on(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be a number from 0 on"):
        Price(**{"input": 1.0, "output": 1.0, **wrong})
