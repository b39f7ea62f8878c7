"""Servers that do otherwise than OpenAI's, each as somebody meets it: their answers are read all the same."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from loopback import Exchange, Play, Server, answers, loopback, says, sends

from orgthink.engines.endpoint.client import EndpointEngine
from orgthink.engines.engine import Context, EngineError, EngineUnavailable, FinishReason
from orgthink.record.episode import Message, Origin, Sampling, Span
from orgthink.util.http import HttpClient, RetryPolicy, server_url

QUICK = RetryPolicy(first_delay=0.001)
"""Without pauses that a test would wait for."""


@asynccontextmanager
async def opened(*plays: Play, model: str = "tiny", **how: Any) -> AsyncIterator[Any]:
    async with loopback(*plays) as server:
        engine = await EndpointEngine.open(server.url, model, retry_policy=QUICK, **how)
        yield server, engine
        await engine.aclose()


async def answer(engine: EndpointEngine, text: str = "hi", **sampling: Any) -> tuple[str, FinishReason | None]:
    context = Context((Message("user", text),), [Span(Origin.PROMPT, text, 1)])
    chunks = [chunk async for chunk in engine.stream(context, Sampling(100, **sampling))]
    return "".join(piece for chunk in chunks for piece in chunk.pieces).strip(), chunks[-1].finish


async def test_a_prompt_that_is_too_long_changes_no_later_request() -> None:
    """vLLM's refusal names both members for the most tokens, and its completions know only one of them."""
    long = (
        "'max_tokens' or 'max_completion_tokens' is too large: 100. This model's maximum context length is 64 tokens "
        "and your request has 60 input tokens (100 > 64 - 60)."
    )
    async with opened(answers(400, long), says("short"), says("whole")) as (server, engine):
        assert await answer(engine) == ("short", FinishReason.EOS)
        assert await answer(engine) == ("whole", FinishReason.EOS)
        assert [exchange.body.get("max_tokens") for exchange in server.exchanges] == [100, 50, 100]
        assert not any("max_completion_tokens" in exchange.body for exchange in server.exchanges)


async def test_a_server_without_seeds_gets_none() -> None:
    """As Mistral refuses what it does not know."""

    async def strict(exchange: Exchange) -> None:
        if "seed" in exchange.body:
            wrong = {"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}
            return await exchange.reply(422, {"detail": [wrong]})
        await says("seven")(exchange)

    async with opened(*[strict] * 3) as (server, engine):
        assert (await answer(engine, seed=1))[0] == "seven" == (await answer(engine, seed=2))[0]
        assert ["seed" in exchange.body for exchange in server.exchanges] == [True, False, False], "it was learned"


async def test_a_key_that_is_refused_at_once_is_named() -> None:
    async with loopback() as server:
        server.listing = server.probing = answers(403, "no access")
        with pytest.raises(EngineUnavailable, match="refuses the API key: no access"):
            await EndpointEngine.open(server.url, "tiny", api_key="secret", retry_policy=QUICK)


@pytest.mark.parametrize("body", [{"error": "Unexpected endpoint or method"}, {"choices": []}, []])
async def test_an_answer_without_an_answer_opens_nothing(body: Any) -> None:
    """LM Studio answers 200 to any path."""

    async def odd(exchange: Exchange) -> None:
        await exchange.reply(200, body)

    async with loopback() as server:
        server.listing = server.probing = odd
        with pytest.raises(EngineUnavailable, match="sent no answer of a model"):
            await EndpointEngine.open(server.url, "tiny", retry_policy=QUICK)


@pytest.mark.parametrize(
    "choice",
    [
        {"index": 0, "finish_reason": None, "content_filter_offsets": {}},  # Azure's filter
        {"delta": {"content": ""}, "logprobs": 7},
        {"delta": {"content": ""}, "logprobs": {"tokens": None, "token_logprobs": [0.5]}},
    ],
)
@pytest.mark.parametrize("usage", [{"prompt_tokens": 3.5, "completion_tokens": -1}, "many", [], None])
async def test_what_an_answer_is_as_good_without_does_not_end_it(choice: dict[str, Any], usage: Any) -> None:
    async def play(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.say("one ")
        await exchange.event({"choices": [choice]})
        last = {"delta": {"content": "two"}, "finish_reason": "stop"}
        await exchange.event({"choices": [last], "usage": usage})
        await exchange.end()

    async with opened(play) as (_, engine):
        assert await answer(engine) == ("one two", FinishReason.EOS)


def fails(code: object, message: str = "no") -> Play:
    """Answers 200 before it has begun, and then fails."""
    return sends(json.dumps({"error": {"message": message, "code": code}}), "[DONE]")


@pytest.mark.parametrize("code", [429, "429", 503, 500])
async def test_a_failure_as_the_first_event_is_tried_again(code: object) -> None:
    async with opened(fails(code), says("fine")) as (server, engine):
        assert (await answer(engine))[0] == "fine" and len(server.exchanges) == 2


@pytest.mark.parametrize(
    ("listed", "name", "taken"),
    [
        ("models/gemini-2.5-flash", "gemini-2.5-flash", True),
        ("llama3.2:latest", "llama3.2", True),
        ("openai/gpt-4o", "openai/gpt-4o:online", True),
        ("llama3.2:latest", "llama3.3", False),
        ("tiny", "tinny", False),
    ],
)
async def test_a_model_may_be_listed_under_a_longer_name(listed: str, name: str, taken: bool) -> None:
    async with loopback() as server:
        server.listing = lambda exchange: exchange.reply(200, {"data": [{"id": listed}]})
        if taken:
            engine = await EndpointEngine.open(server.url, name)
            assert engine.model == name
            await engine.aclose()
        else:
            with pytest.raises(EngineUnavailable, match=f"no model '{name}': {listed}"):
                await EndpointEngine.open(server.url, name)


@pytest.mark.parametrize("status", [400, 403, 404, 501])
async def test_a_list_that_is_refused_is_not_needed_where_a_model_is_named(status: int) -> None:
    """As a key of OpenAI's that may ask a model, and may not list them."""
    async with loopback() as server:
        server.listing = answers(status, "Missing scopes: api.model.read")
        engine = await EndpointEngine.open(server.url, "tiny")
        assert engine.model == "tiny"
        await engine.aclose()
        with pytest.raises(EngineUnavailable):
            await EndpointEngine.open(server.url)


async def test_a_server_may_have_a_key_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """In its URL, as a password without a user; the key of the environment goes to the others."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-usual")
    monkeypatch.setenv("OTHER_PART", "sk-other%2F1")

    async def sent(server: Server, url: str) -> set[str]:
        engine = await EndpointEngine.open(url, "tiny")
        assert (await answer(engine))[0] == "fine" and "sk-other" not in engine.url
        await engine.aclose()
        return {exchange.headers["authorization"] for exchange in server.exchanges}

    for login, header in ((":${OTHER_PART}@", "Bearer sk-other/1"), ("", "Bearer sk-usual")):
        async with loopback(says("fine")) as server:
            assert await sent(server, server.url.replace("://", f"://{login}")) == {header}
    async with loopback(says("fine")) as server:
        (header,) = await sent(server, server.url.replace("://", "://me:secret@"))
        assert header.startswith("Basic ")


async def test_no_log_line_of_the_http_library_shows_a_password(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with loopback(answers(200)) as server:
        url = server.url.replace("://", "://me:pass-word@") + "?key=secret-key"
        client = HttpClient(server_url(url), failure=EngineError)
        await client.request("POST", "models", {})
        await client.aclose()
    assert "pass-word" not in caplog.text and "secret-key" not in caplog.text
