"""A training in a thread of its own, because the caller's thread has a running event loop, such as a notebook's.

Such a thread gets no Ctrl-C. What ends the caller's wait stands in for it: the step ends and a checkpoint is saved.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import TypeVar

from orgthink.training.interrupt import STOP
from orgthink.util.terminal import show

T = TypeVar("T")


def wherever(work: Callable[[], T]) -> T:
    """The result of a training. If an event loop is running, another thread does the work. Then the first Ctrl-C waits
    for the step, and the second one for nothing; the step is finished all the same."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    result, stop = _begun(work)
    try:
        return result.result()
    except KeyboardInterrupt:
        if not result.done():
            _end(stop)
        return result.result()


async def beside_the_loop(work: Callable[[], T]) -> T:
    """The same while the event loop goes on. A cancellation is the Ctrl-C."""
    result, stop = _begun(work)
    waited = asyncio.wrap_future(result)
    try:
        return await asyncio.shield(waited)
    except asyncio.CancelledError:
        _end(stop)
        await asyncio.wait([waited])
        raise asyncio.CancelledError from waited.exception()


def _begun(work: Callable[[], T]) -> tuple[Future[T], threading.Event]:
    """What a new thread makes, and what stops it."""
    result, stop, context = Future[T](), threading.Event(), copy_context()
    context.run(STOP.set, stop)

    def run() -> None:
        try:
            made = context.run(work)
        except BaseException as error:  # the caller gets it
            result.set_exception(error)
        else:
            result.set_result(made)

    threading.Thread(target=run, name="training").start()
    return result, stop


def _end(stop: threading.Event) -> None:
    stop.set()
    show("orgthink: finishing the step; the next Ctrl-C does not wait for it", error=True)
