"""The consumers of a batch: what is sampled for a request goes to a stream on an event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from orgthink.engines.engine import EngineError
from orgthink.engines.local.batch import DecodeBatch, Request, Token


@dataclass(slots=True, eq=False)
class Stream(Request):
    """A request and its consumer on an event loop."""

    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    pending: deque[Token | EngineError] = field(default_factory=deque)
    """Tokens that the consumer has not taken yet."""
    notified: bool = False
    """Whether the consumer was notified since it last checked `pending`."""
    waiter: asyncio.Future[None] | None = None

    async def take(self) -> list[Token]:
        """All tokens since the last time, at least one. Raises EngineError."""
        while True:
            self.notified = False  # before the check, so that no later token is missed
            if self.pending:
                break
            self.waiter = self.loop.create_future()
            await self.waiter
        tokens: list[Token] = []
        while self.pending:
            item = self.pending[0]
            if isinstance(item, EngineError):
                if tokens:
                    break  # return the earlier tokens first
                raise item
            tokens.append(item)
            self.pending.popleft()
        return tokens

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class Consumers:
    """A batch and the streams of its requests. One step, or one of the other methods, at a time."""

    def __init__(self, batch: DecodeBatch[Stream]) -> None:
        self.batch = batch
        self.open: set[Stream] = set()
        """Streams that wait for tokens, so that a failure reaches all of them."""

    @property
    def busy(self) -> bool:
        """Whether there is anything to decode."""
        return self.batch.busy

    @property
    def light(self) -> bool:
        """Whether a step is short enough for an event loop."""
        return self.batch.light

    def loops(self) -> set[asyncio.AbstractEventLoop]:
        """Event loops of the open streams."""
        return {stream.loop for stream in self.open if not stream.loop.is_closed()}

    def submit(self, stream: Stream) -> None:
        self.open.add(stream)
        self.batch.submit(stream)

    def drop(self, streams: list[Stream]) -> None:
        self.open.difference_update(streams)
        self.batch.abort(streams)

    def step(self, here: asyncio.AbstractEventLoop | None) -> None:
        """A step; consumers on the event loop `here`, which does it, are woken at once."""
        try:
            self.deliver(self.batch.step(), here)
        except BaseException as error:
            self.fail(EngineError(f"decoding failed: {error!r}"))
            if not isinstance(error, Exception):
                raise

    def fail(self, error: EngineError) -> None:
        """End all requests. Their streams raise the error."""
        self.batch.clear()
        for stream in self.open:
            stream.over = True
        self.deliver([(stream, error) for stream in self.open], None)
        self.open.clear()

    def deliver(
        self, items: Sequence[tuple[Stream, Token | EngineError]], here: asyncio.AbstractEventLoop | None
    ) -> None:
        """Give tokens to their streams, and wake up the consumers that are not notified yet."""
        sleeping: dict[asyncio.AbstractEventLoop, list[Stream]] = {}
        for stream, item in items:
            if isinstance(item, Token) and item.finish is not None:
                self.open.discard(stream)
            stream.pending.append(item)
            if not stream.notified:
                stream.notified = True
                sleeping.setdefault(stream.loop, []).append(stream)
        for loop, streams in sleeping.items():
            if loop is here:
                _wake(streams)
                continue
            try:
                loop.call_soon_threadsafe(_wake, streams)
            except RuntimeError:  # the loop was closed: there is no consumer
                self.drop(streams)


def _wake(streams: list[Stream]) -> None:
    for stream in streams:
        stream.wake()
