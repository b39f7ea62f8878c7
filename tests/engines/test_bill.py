"""What servers report of their bills, each in its own way."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback import MODEL, Exchange, loopback, says

from orgthink.engines import wire
from orgthink.engines.endpoint import EndpointEngine
from orgthink.engines.engine import FinishReason
from orgthink.organizations.sequential import Sequential
from orgthink.record.episode import Billed, Origin, Problem, Sampling
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt

USAGES = [
    pytest.param(
        {
            "prompt_tokens": 2006,
            "completion_tokens": 300,
            "total_tokens": 2306,
            "prompt_tokens_details": {"cached_tokens": 1920, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 128, "accepted_prediction_tokens": 0},
        },
        Billed(2006, 1920, 300, 128),
        id="OpenAI",
    ),
    pytest.param(
        {"prompt_tokens": 15, "completion_tokens": 4, "total_tokens": 19, "prompt_tokens_details": None},
        Billed(15, None, 4, None),
        id="vLLM and Ollama",
    ),
    pytest.param(
        {"prompt_tokens": 15, "completion_tokens": 9, "total_tokens": 24, "reasoning_tokens": 5},
        Billed(15, None, 9, 5),
        id="SGLang",
    ),
    pytest.param(
        {"prompt_tokens": 90, "completion_tokens": 9, "prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 26},
        Billed(90, 64, 9, None),
        id="DeepSeek",
    ),
    pytest.param(
        {
            "prompt_tokens": 32,
            "completion_tokens": 9,
            "total_tokens": 135,
            "completion_tokens_details": {"reasoning_tokens": 94},
        },
        Billed(32, None, 103, 94),
        id="xAI: thoughts beside the completion",
    ),
    pytest.param(
        {"prompt_tokens": 21, "completion_tokens": 0, "total_tokens": 81},
        Billed(21, None, 60, None),
        id="Gemini: thoughts in the total alone",
    ),
    pytest.param({"completion_tokens": 7}, Billed(output=7), id="no prompt"),
    pytest.param({"total_tokens": 7}, None, id="a total alone"),
    pytest.param(
        {"prompt_tokens": 5, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 6}},
        Billed(5, None, 7, None),
        id="more cached than read",
    ),
    pytest.param(
        {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 3, "completion_tokens_details": [1]},
        Billed(5, None, 7, None),
        id="a total that is less, and details that are none",
    ),
]


def event_with(usage: Any) -> wire.StreamEvent:
    return wire.event(json.dumps({"choices": [], "usage": usage}))


@pytest.mark.parametrize(("usage", "billed"), USAGES)
def test_the_counts_of_servers(usage: dict[str, Any], billed: Billed | None) -> None:
    event = event_with(usage)
    assert event.billed == billed
    assert event.tokens == usage.get("completion_tokens"), "budgets know only what the server calls the completion"


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["cached_tokens", "reasoning_tokens"]), inner)
    ),
    max_leaves=5,
)
_count = st.none() | st.integers(0, 2**31 - 1)
_usages = st.fixed_dictionaries(
    {},
    optional={
        "prompt_tokens": _count,
        "completion_tokens": _count,
        **dict.fromkeys(("total_tokens", "prompt_cache_hit_tokens", "reasoning_tokens"), _json),
        **dict.fromkeys(("prompt_tokens_details", "completion_tokens_details"), _json),
    },
)


@given(_usages)
def test_a_bill_adds_up_whatever_a_server_sends(usage: dict[str, Any]) -> None:
    billed = event_with(usage).billed
    if billed is not None:
        assert (billed.input, billed.output) != (None, None)
        assert billed.cached is None or 0 <= billed.cached <= (billed.input or 0)
        assert billed.reasoning is None or 0 <= billed.reasoning <= (billed.output or 0)
        assert billed.output is None or (usage["completion_tokens"] or 0) <= billed.output < 2**31


def with_bill(text: str, usage: dict[str, Any], *, finish: str = "stop") -> Any:
    """An answer whose last event has the usage."""

    async def play(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.say(text)
        await exchange.say("", finish)
        await exchange.event({"choices": [], "usage": usage})
        await exchange.event("[DONE]")
        await exchange.end()

    return play


async def test_the_record_has_the_bill_of_each_request() -> None:
    usage = {"prompt_tokens": 40, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 32}}
    async with loopback(with_bill("<ANSWER> 7 </ANSWER", usage), says("<ANSWER> 7 </ANSWER")) as server:
        engine = await EndpointEngine.open(server.url, MODEL)
        episodes = [await attempt(Sequential(), Problem("p", "t", "q"), Backing(engine, Sampling(9))) for _ in range(2)]
        await engine.aclose()
    bills = [[span.billed for span in episode.root.spans if span.origin is Origin.SAMPLED] for episode in episodes]
    assert bills == [[Billed(40, 32, 5)], [None]]
    assert all(span.billed is None for span in episodes[0].root.spans if span.origin is not Origin.SAMPLED)


async def test_a_bill_beyond_what_was_asked_for_does_not_touch_the_count_of_steps() -> None:
    usage = {"prompt_tokens": 10**9, "completion_tokens": 10**9, "total_tokens": 2 * 10**9}
    async with loopback(with_bill("one", usage)) as server:
        engine = await EndpointEngine.open(server.url, MODEL)
        episode = await attempt(Sequential(), Problem("p", "t", "q"), Backing(engine, Sampling(9)))
        await engine.aclose()
    assert episode.root.steps == 9
    assert episode.root.spans[-1].billed == Billed(10**9, None, 10**9)


async def test_a_stream_ends_with_its_bill() -> None:
    async with loopback(with_bill("one", {"prompt_tokens": 3, "completion_tokens": 1}, finish="length")) as server:
        engine = await EndpointEngine.open(server.url, MODEL)
        from test_endpoint import read

        _, chunks = await read(engine)
        await engine.aclose()
    assert [(chunk.finish, chunk.billed) for chunk in chunks] == [
        (None, None),
        (FinishReason.LENGTH, Billed(3, None, 1)),
    ]
