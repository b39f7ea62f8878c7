"""Deadlines that hold: cancellation gets a bounded grace period, then the task is left behind.

`asyncio.timeout` alone waits for however long a cancelled task takes to clean up. A deadline stands still while
anything below it waits for a place at a client of ours, such as the bound on streams to a server; a single stay in
such a place is no longer than the deadline nevertheless.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from orgthink.concurrency import on_hold

T = TypeVar("T")

_left_behind: set[asyncio.Task[Any]] = set()
"""Tasks that outlived their grace period, kept so that they are not collected half-way."""


class DeadlineMissed(Exception):
    """Work was stopped because its time was over. A TimeoutError is the work's own."""


class Deadline:
    """A number of seconds, in which it can be held."""

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self._loop.create_future()
        self._left, self._holds = seconds, 0
        self._run()

    def hold(self) -> None:
        self._holds += 1
        if self._holds == 1:
            self._timer.cancel()
            self._left -= self._loop.time() - self._since

    def release(self) -> None:
        self._holds -= 1
        if self._holds == 0:
            self._run()

    def limit(self) -> asyncio.TimerHandle:
        passed = 0.0 if self._holds else self._loop.time() - self._since
        return self._loop.call_later(max(0.0, self._left - passed), self._pass)

    def close(self) -> None:
        """It is of no interest any more."""
        self._timer.cancel()
        self.over.cancel()

    def _run(self) -> None:
        self._since = self._loop.time()
        self._timer = self._loop.call_later(max(0.0, self._left), self._pass)

    def _pass(self) -> None:
        if not self.over.done():
            self.over.set_result(None)


async def within(seconds: float | None, grace: float, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; DeadlineMissed at most `seconds + grace` seconds from now, while it is not held.

    Cancelling the caller cancels the work, with the same grace.
    """
    if seconds is None:
        return await _outcome(asyncio.ensure_future(work), None, grace)
    deadline = Deadline(seconds)
    try:
        with on_hold(deadline):
            task = asyncio.ensure_future(work)
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
    """Cancel tasks and wait for them, for `grace` seconds at most."""
    pending = {task for task in tasks if not task.done()}
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
