"""What a server means by a refusal, and what is done about it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback import Exchange, answers, loopback, says
from test_endpoint import opened, read

from orgthink.engines import refusals
from orgthink.engines.engine import ContextFull, EngineError, EngineUnavailable
from orgthink.engines.wire import Mode
from orgthink.record.episode import Sampling
from orgthink.util.errors import RequestRefused
from orgthink.util.http_response import HttpResponse

# A model that thinks has no answer after one token.

TOO_FEW = (
    "Could not finish the message because max_tokens or model output limit was reached. Please try again with higher "
    "max_tokens."
)


async def thinking(exchange: Exchange) -> None:
    """A model of OpenAI's that thinks longer than a few tokens: it then refuses a request that it has accepted."""
    if "max_tokens" in exchange.body:
        await answers(400, "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.")(
            exchange
        )
    elif exchange.body["max_completion_tokens"] < 20:
        await answers(400, TOO_FEW)(exchange)
    else:
        await says("fine")(exchange)


async def test_a_model_that_does_not_finish_within_one_token_is_opened() -> None:
    async with loopback(thinking) as server:
        server.probing, server.completions = thinking, False
        engine = await opened(server)
        text, _ = await read(engine)
        await engine.aclose()
    assert (text, engine.mode, engine.native_calls) == ("fine ", Mode.CHAT, True)


async def test_tools_that_such_a_model_refuses_are_not_offered() -> None:
    async def without_tools(exchange: Exchange) -> None:
        refuses = "tools" in exchange.body and "max_tokens" not in exchange.body
        await (answers(400, "'tools' is not supported with this model.") if refuses else thinking)(exchange)

    async with loopback() as server:
        server.probing, server.completions = without_tools, False
        engine = await opened(server)
        await engine.aclose()
    assert (engine.mode, engine.native_calls) == (Mode.CHAT, False)


async def test_another_refusal_of_the_first_token_is_still_one() -> None:
    async with loopback() as server:
        server.probing = answers(400, "This model is not for you.")
        with pytest.raises(EngineUnavailable, match="not for you"):
            await opened(server)


# A context that is full.


@pytest.mark.parametrize(
    "error",
    [
        {"message": "No.", "code": "context_length_exceeded"},
        {"message": "No.", "type": "exceed_context_size_error"},
        {"message": "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300007."},
        {"message": "Please reduce the length of the messages or completion."},
        {"message": "This model's maximum prompt length is 131072 but the request contains 537812 tokens."},
    ],
    ids=str,
)
async def test_a_full_context_is_recognised_by_its_code_or_by_its_words(error: dict[str, str]) -> None:
    async def play(exchange: Exchange) -> None:
        await exchange.reply(400, {"error": {"code": None, "param": "messages", **error}})

    async with loopback(play) as server:
        engine = await opened(server)
        with pytest.raises(ContextFull):
            await read(engine, Sampling(20))
        await engine.aclose()


@pytest.mark.parametrize(
    "message",
    [
        TOO_FEW,
        "max_tokens is too large: 8000. This model supports at most 4096 completion tokens.",
        "Invalid value: reduce 'n'.",
        "the maximum number of images in a prompt is 5",
    ],
)
async def test_other_limits_are_no_full_context(message: str) -> None:
    async with loopback(answers(400, message)) as server:
        engine = await opened(server)
        with pytest.raises(EngineError) as caught:
            await read(engine)
        await engine.aclose()
    assert type(caught.value) is RequestRefused


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda parts: st.lists(parts) | st.dictionaries(st.sampled_from(["error", "code", "type", "message"]), parts),
)


@given(JSON)
def test_a_refusal_may_be_anything(body: Any) -> None:
    reply = HttpResponse(400, json.dumps(body).encode("utf-8", "replace"))
    assert not refusals.context_full(reply)
    assert not refusals.too_few_tokens(reply)
