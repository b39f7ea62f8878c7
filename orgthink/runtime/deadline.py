"""Deadlines with a bounded grace period: a task that does not end when it is cancelled is left behind.

`asyncio.timeout` alone waits for however long a cancelled task takes to clean up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

_left_behind: set[asyncio.Task[Any]] = set()
"""Tasks that outlived their grace period; a task without a reference could be collected half-way."""


class DeadlineMissed(Exception):
    """Work was stopped because its time was over. A TimeoutError is the work's own."""


async def within(seconds: float | None, grace: float, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; DeadlineMissed at most `grace` seconds after its time is over.

    Cancelling the caller cancels the work, with the same grace.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        await end({task}, grace)
        raise
    if not task.done():
        await end({task}, grace)
        if not task.done() or task.cancelled():
            raise DeadlineMissed
    return task.result()


async def end(tasks: Iterable[asyncio.Task[Any]], grace: float) -> None:
    """Cancel tasks in their order and wait for them, for `grace` seconds at most.

    asyncio does not report those that fail, or failed at the same moment.
    """
    tasks = list(tasks)
    pending = [task for task in tasks if not task.done()]
    for task in pending:
        task.cancel()
    try:
        if pending:
            await asyncio.wait(pending, timeout=grace)
    finally:  # also if the caller is cancelled meanwhile
        for task in tasks:
            if not task.done():
                _left_behind.add(task)
                task.add_done_callback(_reap)
            elif not task.cancelled():
                task.exception()  # retrieved


def _reap(task: asyncio.Task[Any]) -> None:
    _left_behind.discard(task)
    if not task.cancelled() and task.exception() is not None:
        logging.getLogger(__name__).warning("a task left behind failed: %r", task.exception())
