"""A stream of the local engine is woken for every token, whenever the decode thread adds it."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

pytest.importorskip("torch")

from orgthink.engines.local.batch import Token
from orgthink.engines.local.streams import Consumers, Stream
from orgthink.record.episode import Sampling


def deliver(stream: Stream, number: int) -> None:
    Consumers.deliver(None, [(stream, Token(number, 0.0, "0", None))], None)


class Racing(deque):
    """The decode thread adds a token in the very moment that the first one is taken."""

    stream: Stream
    raced = False

    def popleft(self) -> Token:
        if not self.raced:
            self.raced = True
            deliver(self.stream, 1)
        return super().popleft()


async def test_a_token_that_arrives_while_others_are_taken_does_not_silence_the_next():
    pending = Racing()
    stream = Stream([1], Sampling(9), 0, 9, None, pending=pending)
    pending.stream = stream
    deliver(stream, 0)
    assert [token.id for token in await stream.take()] == [0, 1]
    waiting = asyncio.ensure_future(stream.take())
    for _ in range(5):
        await asyncio.sleep(0)
    deliver(stream, 2)
    assert [token.id for token in await asyncio.wait_for(waiting, 5)] == [2]
