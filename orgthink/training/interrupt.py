"""Ctrl-C or SIGTERM ends a training after its step, not within it. Trainings in threads for callers with an event loop.

If the caller's thread has a running event loop, such as a notebook's, the training runs in another thread, which gets
no signals. Then ending the caller's wait has the effect of Ctrl-C: the step ends and a checkpoint is saved.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from types import FrameType
from typing import TypeVar

from orgthink.util.terminal import show

T = TypeVar("T")

STOP: ContextVar[threading.Event | None] = ContextVar("stop", default=None)
"""In a training's thread: the event that its caller sets instead of Ctrl-C."""


@contextmanager
def interrupt(under_way: Callable[[], str]) -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C or SIGTERM sets. It also prints `under_way`, which will be finished.

    The second Ctrl-C raises KeyboardInterrupt, the second SIGTERM ends the process. Python handles signals in the main
    thread only. In another thread the event is that of `STOP`, or is never set.
    """
    interrupted = STOP.get() or threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return

    def handle(number: int, frame: FrameType | None) -> None:
        restore()
        interrupted.set()
        answer(f"orgthink: finishing {under_way()}; Ctrl-C again stops now")

    def restore() -> None:
        for each, handler in before.items():
            signal.signal(each, handler)

    known = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    before = {each: handler for each, handler in known.items() if handler is not None}  # None: not set by Python
    for each in before:
        signal.signal(each, handle)
    try:
        yield interrupted
    finally:
        restore()


def answer(line: str) -> None:
    """Write a line to standard error from a signal handler, which may interrupt a print.

    A print within a print is an error, so this writes to the descriptor. A pipe may be closed.
    """
    with suppress(RuntimeError, OSError):
        if sys.stderr is sys.__stderr__:
            os.write(2, f"{line}\n".encode())
        else:
            show(line, error=True)


async def beside_the_loop(work: Callable[[], T]) -> T:
    """The result of a training in another thread, while the event loop continues. A cancellation acts as Ctrl-C: the
    step ends first. The next one does not wait for that."""
    stop, context = threading.Event(), copy_context()
    context.run(STOP.set, stop)
    thread = ThreadPoolExecutor(1, "training")
    result = asyncio.wrap_future(thread.submit(context.run, work))
    thread.shutdown(wait=False)
    try:
        return await asyncio.shield(result)
    except asyncio.CancelledError:
        stop.set()
        show("orgthink: finishing the step; the next Ctrl-C does not wait for it", error=True)
        await asyncio.wait([result])
        raise asyncio.CancelledError from result.exception()
