"""What a server means by a refusal, and what is done about it."""

from __future__ import annotations

import pytest
from loopback import Exchange, answers, loopback
from test_endpoint import opened, read

from orgthink.engines.engine import ContextFull, EngineError
from orgthink.record.episode import Sampling
from orgthink.util.errors import RequestRefused

# A model that thinks has no answer after one token.

TOO_FEW = (
    "Could not finish the message because max_tokens or model output limit was reached. Please try again with higher "
    "max_tokens."
)


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
