"""Deadlines that hold: cancellation gets a bounded grace period, then the task is left behind.

`asyncio.timeout` alone waits for however long a cancelled task takes to clean up. What waits for a place at a client of
ours, such as the bound on streams to a server, takes no time: a deadline passes when some chain of the work, from its
begin through forks and joins, would have taken so long without. So what is wide is not late, and nothing goes on for
ever only because something always waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from orgthink.util.concurrency import Stopwatch, chain, elapsed, standing_still

T = TypeVar("T")

_NOTHING, _OFTEN = 1e-6, 0.01
"""Seconds: what is left of a deadline that has passed, and between two looks at chains that stand still."""

_left_behind: set[asyncio.Task[Any]] = set()
"""Tasks that outlived their grace period, kept so that they are not collected half-way."""


class DeadlineMissed(Exception):
    """Work was stopped because its time was over. A TimeoutError is the work's own."""


class Deadline:
    """Passes when a chain of work below it has taken so many seconds."""

    def __init__(self, end: float) -> None:
        """`end` is what the watch of that chain then shows."""
        self._loop, self._end = asyncio.get_running_loop(), end
        self.over: asyncio.Future[None] = self._loop.create_future()
        self.watches: set[Stopwatch] = set()
        """Of all chains below it that go on."""
        self._timer: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """Pass, or look again when the longest chain could have come to its end."""
        left = self._end - max((watch.read() for watch in self.watches), default=0.0)
        if left > _NOTHING:
            self._timer = self._loop.call_later(max(left, _OFTEN), self.look)
        elif not self.over.done():
            self.over.set_result(None)

    def close(self) -> None:
        """It is of no interest any more."""
        if self._timer is not None:
            self._timer.cancel()
        self.over.cancel()


async def within(seconds: float | None, grace: float, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; DeadlineMissed at most `grace` seconds after a chain of it has taken so many seconds.

    Cancelling the caller cancels the work, with the same grace.
    """
    if seconds is None:
        return await _outcome(asyncio.ensure_future(work), None, grace)
    watch, deadline = Stopwatch(elapsed()), Deadline(elapsed() + seconds)
    try:
        with standing_still(watch), chain(watch, deadline):
            task = asyncio.ensure_future(work)
            deadline.look()
            return await _outcome(task, deadline.over, grace)
    finally:
        deadline.close()


async def _outcome(task: asyncio.Task[T], over: asyncio.Future[None] | None, grace: float) -> T:
    try:
        await asyncio.wait({task} if over is None else {task, over}, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        await end({task}, grace)
        if task.done() and not task.cancelled():
            task.exception()  # it failed at the same moment: seen, and of no interest any more
        raise
    if not task.done():
        await end({task}, grace)
        if not task.done() or task.cancelled():
            raise DeadlineMissed
    return task.result()


async def end(tasks: Iterable[asyncio.Task[Any]], grace: float) -> None:
    """Cancel tasks in their order and wait for them, for `grace` seconds at most."""
    pending = [task for task in tasks if not task.done()]
    for task in pending:
        task.cancel()
    if not pending:
        return
    _, late = await asyncio.wait(pending, timeout=grace)
    for task in late:
        _left_behind.add(task)
        task.add_done_callback(_reap)


def _reap(task: asyncio.Task[Any]) -> None:
    _left_behind.discard(task)
    if not task.cancelled() and task.exception() is not None:
        logging.getLogger(__name__).warning("a task left behind failed: %r", task.exception())
