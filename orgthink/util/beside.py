"""Blocking work in threads beside an event loop.

The end of the program waits for what is under way, but not for ever: a grader may hang.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from contextvars import ContextVar, copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from orgthink.util.terminal import error_text

P = ParamSpec("P")
T = TypeVar("T")

LAST_SECONDS = 5.0
"""What is under way at the end of the program gets so long to notice that nobody waits for it any more."""

_Order = tuple[Future[Any], Callable[[], Any]]
_under_way: set[Future[Any]] = set()


class _Daemons(Executor):
    """As a ThreadPoolExecutor, but the end of the program does not wait for its threads. For one caller at a time."""

    def __init__(self, most: int) -> None:
        """At most so many threads; further work waits."""
        self._most = most
        self._orders: SimpleQueue[_Order | None] = SimpleQueue()
        self._free = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        weakref.finalize(self, _dismiss, self._orders, self._threads)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        self._orders.put((future, partial(fn, *args, **kwargs)))
        if not self._free.acquire(blocking=False) and len(self._threads) < self._most:
            thread = threading.Thread(target=_work, args=(self._orders, self._free), daemon=True)
            thread.start()
            self._threads.append(thread)
        return future


def _work(orders: SimpleQueue[_Order | None], free: threading.Semaphore) -> None:
    """What a thread does. It does not hold its executor, so that this may be forgotten."""
    while (order := orders.get()) is not None:
        _carry_out(*order)
        del order  # it holds what it was about
        free.release()


def _carry_out(future: Future[Any], work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    _under_way.add(future)
    try:
        result = work()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
    finally:
        _under_way.discard(future)
        del future  # its error holds this frame


def _dismiss(orders: SimpleQueue[_Order | None], threads: list[threading.Thread]) -> None:
    for _ in threads:
        orders.put(None)


@atexit.register
def have_ended() -> bool:
    """Whether nothing is under way any more; what is gets the last seconds, unless a Ctrl-C takes them."""
    try:
        return not wait(list(_under_way), LAST_SECONDS).not_done
    except KeyboardInterrupt:
        return False


class Threads:
    """Threads beside each event loop, for one kind of work that may take long.

    The loop's own threads look up the names of servers: whoever keeps them all cuts every agent off.
    """

    def __init__(self, most: int) -> None:
        """At most so many at once; further work waits."""
        self._most = most
        self._pools = weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Daemons]()

    async def run(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """What the work returns. It sees the context variables of its caller."""
        loop = asyncio.get_running_loop()
        if loop not in self._pools:
            self._pools[loop] = _Daemons(self._most)
        seen = partial(copy_context().run, _ordinary, work, *arguments, **named)
        return await loop.run_in_executor(self._pools[loop], seen)


def _ordinary(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """What the work returns. RuntimeError for what it raises that is no ordinary error: no future can hold a
    StopIteration, so whoever waits would wait without end, and the loop takes a SystemExit for its own end.
    """
    try:
        return work(*arguments, **named)
    except BaseException as error:  # a library in Rust that panics raises no Exception
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            raise
        raise RuntimeError(f"the work raised {type(error).__name__}: {error_text(error)}") from error


_working = Threads(min(32, (os.cpu_count() or 1) + 4))
"""For graders and votes, which may run programs for minutes."""

_given_up: ContextVar[threading.Event | None] = ContextVar("given up", default=None)
"""Of the work of this thread."""


async def in_thread(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """What blocking work returns, in a thread beside the event loop.

    Once nobody waits for it any more, `given_up` tells the work.
    """
    over = threading.Event()
    token = _given_up.set(over)
    try:
        return await _working.run(work, *arguments, **named)
    finally:
        over.set()
        _given_up.reset(token)


def given_up() -> bool:
    """Whether nobody waits any more for the work of this thread."""
    over = _given_up.get()
    return over is not None and over.is_set()
