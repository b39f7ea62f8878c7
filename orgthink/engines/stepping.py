"""Runs the decoding steps of an engine in this process, and passes its tokens to event loops."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from orgthink.engines.engine import EngineError
from orgthink.util.terminal import reason

T = TypeVar("T")


class FatalError(EngineError):
    """The engine cannot continue after this error."""


@dataclass(slots=True)
class Counters:
    """Work of an engine so far."""

    steps: int = 0
    """Decoding steps of the whole batch."""
    sampled_tokens: int = 0
    computed_prompt_tokens: int = 0
    """Prompt tokens that the model read; at a join, the injected ones and the last token before them."""
    reused_prompt_tokens: int = 0
    """Prompt tokens from the cache."""


class Stepper:
    """Decodes while there is anything to do: in a thread, or on the event loop of the callers.

    A subclass defines `busy`, `step` and `end`, which run in one place, one at a time. Posted functions run between two
    steps, so an abort or an update of the weights happens between two tokens. Without a thread the results do not
    depend on timing, and one event loop at a time may use the engine.
    """

    def __init__(self, *, threaded: bool = True) -> None:
        """Call this when the subclass is ready to step."""
        self._posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        """Held while work is posted, or the engine is closed."""
        self._closed: EngineError | None = None
        """Error of later requests, once the engine is closed."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """Event loop that decodes; `None` with a thread, and when there is nothing to do."""
        self._thread = threading.Thread(target=self._run, name="decode", daemon=True) if threaded else None
        if self._thread is not None:
            self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether a step has anything to do."""
        raise NotImplementedError

    def step(self) -> None:
        """Decode a token of each request. An exception ends the engine."""
        raise NotImplementedError

    def end(self, error: EngineError) -> None:
        """End all requests with this error, and release everything."""
        raise NotImplementedError

    def post(self, work: Callable[[], T]) -> Future[T]:
        """Run a function between two steps. EngineError if the engine is closed."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except Exception as error:
                future.set_exception(error)
                if isinstance(error, FatalError):
                    raise

        with self._lock:
            if self._closed is not None:
                raise EngineError(str(self._closed))
            self._posted.put(run)
            if self._thread is None and self._loop is not (loop := asyncio.get_running_loop()):
                self._loop = loop
                loop.call_soon(self._tick, loop)
        return future

    async def call(self, work: Callable[[], T]) -> T:
        """The result of a function that runs between two steps. Cancelling the caller does not undo it."""
        return await asyncio.shield(asyncio.wrap_future(self.post(work)))

    async def close(self) -> None:
        """End all requests, and wait until no step is running."""
        with self._lock:
            first, self._closed = self._closed is None, self._closed or EngineError("the engine was closed")
            self._posted.put(lambda: None)  # wakes the thread
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
        elif first:
            self._end(self._closed)

    def _run(self) -> None:
        """The decode thread."""
        try:
            while self._advance(wait=True):
                pass
            error = EngineError("the engine was closed")
        except Exception as failure:
            error = EngineError(f"decoding failed: {reason(failure)}")
        self._end(error)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        """One step on an event loop, unless another loop has taken over."""
        if self._loop is not loop:
            return
        going = True
        try:
            going = self._advance(wait=False) and self.busy
        finally:  # also after a KeyboardInterrupt: the loop may go on to clean up
            if going:
                loop.call_soon(self._tick, loop)
            else:
                self._loop = None

    def _advance(self, *, wait: bool) -> bool:
        """Run the posted functions, then a step. With `wait`, wait for a function if there is no step to do. False once
        the engine is closed."""
        with suppress(queue.Empty):
            while True:
                self._posted.get(block=wait and not self.busy and self._closed is None)()
        if self._closed is None and self.busy:
            self.step()
        return self._closed is None

    def _end(self, error: EngineError) -> None:
        with self._lock:
            self._closed = self._closed or error
        while not self._posted.empty():
            with suppress(FatalError):
                self._posted.get()()
        self.end(error)


@dataclass(eq=False, slots=True)
class Stream:
    """The consumer of a request, on an event loop."""

    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    items: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    """Tokens, or the EngineError that ended the request."""

    async def take(self) -> list[Any]:
        """All items since the last time, at least one. Raises EngineError, after the tokens before it."""
        items = [await self.items.get()]
        while not self.items.empty():
            items.append(self.items.get_nowait())
        if isinstance(items[-1], EngineError):
            if len(items) == 1:
                raise EngineError(str(items[0]))
            self.items.put_nowait(items.pop())
        return items


def deliver(items: Iterable[tuple[Stream, Any]]) -> set[Stream]:
    """Pass items to their streams; return the streams whose event loop is closed."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Stream, Any]]] = {}
    for stream, item in items:
        by_loop.setdefault(stream.loop, []).append((stream, item))
    gone = set[Stream]()
    for loop, own in by_loop.items():
        try:
            loop.call_soon_threadsafe(_put, own)
        except RuntimeError:
            gone.update(stream for stream, _ in own)
    return gone


def _put(items: list[tuple[Stream, Any]]) -> None:
    for stream, item in items:
        stream.items.put_nowait(item)
