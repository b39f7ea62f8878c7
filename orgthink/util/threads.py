"""Blocking work in threads next to an event loop, and the number of torch's threads.

Threads are daemons: the end of the program does not wait for them, because a grader may hang.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import cache, partial
from typing import Any, ParamSpec, TypeVar

from orgthink.util.terminal import error_text

P = ParamSpec("P")
T = TypeVar("T")

LAST_SECONDS = 5.0
"""Seconds for running work to stop at the end of the program."""

MOST = 8
"""Most threads of torch; more do not help small models."""

_spares = False
"""Whether `set_threads` has chosen to spare cores."""

_under_way: set[Future[Any]] = set()


class Threads:
    """Threads next to each event loop, for one kind of work that may take long.

    The loop's own threads look up names of servers; long work there would block all requests.
    """

    def __init__(self, most: int) -> None:
        """At most so many at once; further work waits, also for work whose caller was cancelled."""
        self._most = most
        self._places = weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]()

    async def run(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """The result of the work. It sees the context variables of its caller."""
        loop = asyncio.get_running_loop()
        places = self._places.setdefault(loop, asyncio.Semaphore(self._most))
        await places.acquire()
        future: Future[T] = Future()
        seen = partial(copy_context().run, _ordinary, work, *arguments, **named)
        _under_way.add(future)
        try:
            threading.Thread(target=_carry_out, args=(future, seen, loop, places), daemon=True).start()
        except RuntimeError:  # the system has no more threads
            _under_way.discard(future)
            places.release()
            raise
        try:
            return await asyncio.wrap_future(future)
        finally:
            del future, seen  # an error refers to this frame


def _carry_out(
    future: Future[Any], work: Callable[[], Any], loop: asyncio.AbstractEventLoop, places: asyncio.Semaphore
) -> None:
    try:
        if future.set_running_or_notify_cancel():
            future.set_result(work())
    except Exception as error:
        future.set_exception(error)
    finally:
        _under_way.discard(future)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(places.release)
        del future, work  # an error refers to this frame


def _ordinary(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """The result of the work. RuntimeError in place of a StopIteration, which a future cannot hold, and in place of a
    SystemExit or a panic of Rust, which would end the event loop."""
    try:
        return work(*arguments, **named)
    except BaseException as error:
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            raise
        raise RuntimeError(f"the work raised {type(error).__name__}: {error_text(error)}") from error


def at_work() -> bool:
    """Whether any thread works; otherwise the event loops have their results."""
    return bool(_under_way)


def have_ended() -> bool:
    """Whether all work has ended; waits for it up to `LAST_SECONDS`, or until Ctrl-C."""
    try:
        return not wait(list(_under_way), LAST_SECONDS).not_done
    except KeyboardInterrupt:
        return False


_working = Threads(min(32, (os.cpu_count() or 1) + 4))
"""Threads for graders and votes, which may run programs for minutes."""

_given_up: ContextVar[threading.Event | None] = ContextVar("given up", default=None)


async def in_thread(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """The result of blocking work in a thread. `given_up` tells the work that its caller was cancelled."""
    over = threading.Event()
    token = _given_up.set(over)
    try:
        return await _working.run(work, *arguments, **named)
    finally:
        over.set()
        _given_up.reset(token)


def given_up() -> bool:
    """Whether the caller of this thread's work was cancelled."""
    over = _given_up.get()
    return over is not None and over.is_set()


@cache
def _background() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


def waited(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, for graders: they are plain functions. It runs on one event loop of this process, in a
    thread, and the caller blocks."""
    return asyncio.run_coroutine_threadsafe(work, _background()).result()


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_threads(*, spare: int) -> None:
    """Let torch use all cores but `spare`, with sleeping OpenMP threads. Call it before torch is imported.

    Threads that spin at barriers are ten times slower on a shared machine. A process with an event loop spares a core
    for it. Variables that the user has set stay.
    """
    global _spares
    _spares = spare > 0 and "OMP_NUM_THREADS" not in os.environ
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, min(cores() - spare, MOST))))


def use_all_cores() -> None:
    """Let torch use the spared cores too: the event loop of a large model has little to do. A user's number stays."""
    import torch

    if _spares:
        torch.set_num_threads(cores())
