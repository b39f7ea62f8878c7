"""One shared connection per event loop.

A context manager must often be left by the task that entered it. So a task of its own enters it and waits;
`asyncio.run` cancels that task at its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Generic, TypeVar

T = TypeVar("T")


class PerLoop(Generic[T]):
    """One open thing for each event loop, opened when it is first asked for."""

    def __init__(self, manager: Callable[[], AbstractAsyncContextManager[T]], seconds: float = 60.0) -> None:
        """`seconds`: how long opening may take."""
        self._manager, self._seconds = manager, seconds
        self._open: dict[asyncio.AbstractEventLoop, tuple[asyncio.Future[T], asyncio.Task[None]]] = {}
        """What is open or being opened, and the task that keeps it so."""
        self.was_open = False
        """Whether it has been opened before, in any loop."""

    async def get(self) -> T:
        """The open thing. Raises what opening raises, to all who wait for it; the next call tries again."""
        loop = asyncio.get_running_loop()
        if loop not in self._open:
            opened: asyncio.Future[T] = loop.create_future()
            self._open[loop] = opened, loop.create_task(self._keep(opened))
        # Shielded: a cancelled caller does not close it for the others.
        return await asyncio.shield(self._open[loop][0])

    def drop(self, thing: T) -> None:
        """Close it in the background: it is of no use any more. One that was opened since is left alone."""
        opened, task = self._open.get(asyncio.get_running_loop(), (None, None))
        if opened is not None and task is not None and opened.done() and opened.result() is thing:
            self._forget(opened)
            task.cancel()

    async def _keep(self, opened: asyncio.Future[T]) -> None:
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self._seconds):
                    thing = await stack.enter_async_context(self._manager())
                self.was_open = True
                opened.set_result(thing)
                await asyncio.Event().wait()
        except Exception as error:
            if not opened.done():
                opened.set_exception(error)
                opened.exception()  # marks it as retrieved
        finally:
            opened.cancel()
            self._forget(opened)

    def _forget(self, opened: asyncio.Future[T]) -> None:
        loop = opened.get_loop()
        if loop in self._open and self._open[loop][0] is opened:
            del self._open[loop]
