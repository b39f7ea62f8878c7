"""How servers end an answer: the word that they give for it, and what follows it."""

from __future__ import annotations

import asyncio

import pytest
from loopback import Exchange, Play, loopback
from test_endpoint import opened, read

from orgthink.engines.endpoint import client as endpoint
from orgthink.engines.engine import FinishReason
from orgthink.record.episode import Billed
from orgthink.util.http import RetryPolicy

# What follows the finish.

USAGE = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}
BILLED = Billed(9, None, 4, None)
PATIENT = RetryPolicy(silence=60)


FINISH = {"choices": [{"delta": {"content": ""}, "finish_reason": "stop"}]}


def ends(*after: object, finish: object = FINISH, late: float | None = None) -> Play:
    """An answer, and after its finish these events, or pauses of so many seconds. The server ends the response `late`;
    without it never."""

    async def play(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.say("fine")
        await exchange.event(finish)
        for part in after:
            await (asyncio.sleep(part) if isinstance(part, float) else exchange.event(part))
        await (exchange.gone.wait() if late is None else asyncio.sleep(late))
        if late is not None:
            await exchange.end()

    return play


@pytest.mark.parametrize(
    ("events", "billed"),
    [
        ([FINISH, USAGE, "[DONE]"], BILLED),
        ([FINISH, "[DONE]"], None),
        ([FINISH | {"usage": USAGE["usage"]}, "[DONE]"], BILLED),
    ],
    ids=["usage and [DONE]", "[DONE]", "usage with the finish"],
)
async def test_a_server_that_closes_late_is_not_waited_for_after_done(
    events: list[object], billed: Billed | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "LINGER", 60.0)
    finish, *after = events
    async with loopback(ends(*after, finish=finish)) as server:
        engine = await opened(server, retry_policy=PATIENT)
        text, chunks = await asyncio.wait_for(read(engine), 10)
        await asyncio.wait_for(server.exchanges[0].gone.wait(), 10)
        await engine.aclose()
    assert (text, chunks[-1].finish, chunks[-1].billed) == ("fine", FinishReason.EOS, billed)
