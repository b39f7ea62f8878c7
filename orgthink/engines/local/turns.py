"""Whose turn it is to decode: the event loop of the callers, or a thread beside it.

Steps of a few rows of a small model are done on the loop, which takes less time than to hand their tokens over to it;
others in the thread, as are those of streams of several loops. Work is posted from any loop and runs between two steps.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from orgthink.engines.engine import EngineError
from orgthink.engines.local.streams import Consumers


@dataclass(frozen=True, slots=True, eq=False)
class _Turn:
    """The right to do steps. Who was given it later than others has it."""

    loop: asyncio.AbstractEventLoop | None
    """The event loop that does them; `None` for the decode thread."""


class Turns:
    """Does the steps of a batch as long as there is anything to decode."""

    def __init__(self, consumers: Consumers, *, threaded: bool) -> None:
        """Without `threaded` all steps are done on a loop, and results do not depend on timing."""
        self._consumers = consumers
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        """Functions to run between two steps."""
        self.closed = False
        self._turn: _Turn | None = None
        """Whose turn it is; `None` while there is nothing to do."""
        self._guard = threading.Lock()
        """Held for the moment in which work is posted or the turn changes."""
        self._stepping = threading.Lock()
        """Held while the consumers are in use."""
        self._turns: queue.SimpleQueue[_Turn | None] = queue.SimpleQueue()
        """Turns of the decode thread; `None` ends it."""
        self._thread = threading.Thread(target=self._run, name="decode", daemon=True) if threaded else None
        if self._thread is not None:
            self._thread.start()

    def post(self, work: Callable[[], None]) -> None:
        """Run a function between two steps. Raises EngineError."""
        loop = asyncio.get_running_loop()
        with self._guard:
            if self.closed:
                raise EngineError("the engine is closed")
            self._inbox.put(work)
            turn = self._turn
            if turn is None or turn.loop not in (None, loop):  # another loop may end before it does this
                here = self._thread is None or (turn is None and self._consumers.light)
                self._give(loop if here else None)

    async def between_steps(self, work: Callable[[], None]) -> None:
        """Like `post`, and wait for its end, also when cancelled. Raises the errors of the function."""
        done: Future[None] = Future()

        def settle() -> None:
            try:
                work()
            except Exception as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        self.post(settle)
        await asyncio.shield(asyncio.wrap_future(done))

    async def close(self) -> None:
        with self._guard:  # nothing is posted afterwards
            if not self.closed:
                self.closed = True
                self._turns.put(None)
        await self.stopped()

    async def stopped(self) -> None:
        """Wait until a closed engine has stopped decoding."""
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
        with self._stepping:  # a step on another event loop may be under way
            self._drain()
            self._consumers.fail(EngineError("the engine was closed"))

    def _give(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Give the turn to an event loop or to the decode thread. The guard is held."""
        self._turn = turn = _Turn(loop)
        if loop is None:
            self._turns.put(turn)
            return
        try:
            loop.call_soon_threadsafe(self._tick, turn)
        except RuntimeError:  # the loop was closed
            self._give(None)

    def _tick(self, turn: _Turn) -> None:
        """One step on the event loop, if it is still its turn."""
        assert turn.loop is not None
        try:
            with self._stepping:
                if self._continues(turn):
                    # Without a thread, consumers run after the next step, as they always did: trainings repeat.
                    self._consumers.step(None if self._thread is None else turn.loop)
        finally:  # also after a KeyboardInterrupt: the loop may go on to clean up
            if self._turn is turn:
                turn.loop.call_soon(self._tick, turn)

    def _run(self) -> None:
        """The decode thread."""
        while (turn := self._turns.get()) is not None:
            with self._stepping:
                while self._continues(turn):
                    self._consumers.step(None)

    def _continues(self, turn: _Turn) -> bool:
        """Run what was posted. Whether a step is to be done in this turn; if not, it is over."""
        while self._turn is turn:
            self._drain()
            busy, home = self._consumers.busy and not self.closed, self._home(turn)
            if busy and home is turn.loop:
                return True
            with self._guard:
                if self._turn is turn and self._inbox.empty():
                    self._turn = None
                    if busy:
                        self._give(home)
        return False

    def _home(self, turn: _Turn) -> asyncio.AbstractEventLoop | None:
        """Where the next step is to be done. A loop that may end serves no streams of others, if there is a thread."""
        loops = self._consumers.loops()
        if self._thread is None:
            return turn.loop if turn.loop in loops or not loops else loops.pop()
        return loops.pop() if self._consumers.light and len(loops) == 1 else None

    def _drain(self) -> None:
        """Run the functions that were posted."""
        while not self._inbox.empty():
            self._inbox.get()()
