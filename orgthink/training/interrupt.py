"""Ctrl-C, or SIGTERM, between two steps of a training instead of within one."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from types import FrameType
from typing import TypeVar

from orgthink.util.terminal import show

STOP: ContextVar[threading.Event | None] = ContextVar("stop", default=None)
"""In a thread, which gets no signals: what its caller sets in place of a Ctrl-C."""


@contextmanager
def interrupt(under_way: Callable[[], str]) -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C sets, or the first SIGTERM, by which schedulers end a process.

    The second one does as usual: Ctrl-C raises KeyboardInterrupt, SIGTERM ends the process.
    The first prints at once what is `under_way` and will be finished. Python handles signals in the main thread only.
    In another thread the event is that of `STOP`, or is never set.
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
    before = {each: handler for each, handler in known.items() if handler is not None}  # None: not of Python
    for each in before:
        signal.signal(each, handle)
    try:
        yield interrupted
    finally:
        restore()


def answer(line: str) -> None:
    """Write a line to standard error from the handler of a signal, which may come in the middle of a print.

    A print within a print is an error, and its line is lost: the descriptor is written to, where nothing else stands in
    for standard error. A pipe may be closed.
    """
    with suppress(RuntimeError, OSError):
        if sys.stderr is sys.__stderr__:
            os.write(2, f"{line}\n".encode())
        else:
            show(line, error=True)


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
