"""Blocking work in threads next to an event loop, and the number of torch's threads.

The end of the program waits for work on texts, such as storing an episode, but not for a grader, which may hang.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import cache, partial
from math import inf
from typing import Any, ParamSpec, TypeVar

from orgthink.util.files import descriptors
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

WORKERS = min(32, (os.cpu_count() or 1) + 4, descriptors() // 16)
"""Most threads that work for an event loop at once. Their programs have files and pipes."""

SHORT = 1 << 16
"""Characters of texts that the event loop works on itself: that takes some milliseconds."""

UNKNOWN = SHORT + 1
"""Characters of texts whose length is not known yet, for `off_loop`."""

PROGRAMS = inf
"""In its place, for work that may run programs for minutes, as graders and votes do."""

_pool = ThreadPoolExecutor(8, "long-texts")
"""Few threads: they share the interpreter with the event loop."""

_places = weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]()

_given_up: ContextVar[threading.Event | None] = ContextVar("given up", default=None)


async def off_loop(size: float, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """The result of work on texts of `size` characters: on long ones in a thread, which sees the context variables of
    its caller, so that the event loop goes on. If the caller is cancelled, work that waits for a thread does not begin.

    `PROGRAMS` have threads of their own, and the end of orgthink does not wait for them. `given_up` tells such work
    that its caller was cancelled; until it ends, it keeps its place among the `WORKERS`.
    """
    if size <= SHORT:
        return work(*arguments, **named)
    loop, context, over = asyncio.get_running_loop(), copy_context(), threading.Event()
    seen = partial(context.run, work, *arguments, **named)
    if size < PROGRAMS:
        return await loop.run_in_executor(_pool, seen)
    context.run(_given_up.set, over)
    places = _places.setdefault(loop, asyncio.Semaphore(WORKERS))
    await places.acquire()
    future: Future[T] = Future()
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
        over.set()
        del future, seen  # an error refers to this frame


def _carry_out(
    future: Future[Any], work: Callable[[], Any], loop: asyncio.AbstractEventLoop, places: asyncio.Semaphore
) -> None:
    try:
        if future.set_running_or_notify_cancel():
            future.set_result(work())
    except BaseException as error:
        # A future cannot hold a StopIteration; a SystemExit or a panic of Rust would end the event loop.
        harmless = isinstance(error, Exception) and not isinstance(error, StopIteration)
        why = f"the work raised {type(error).__name__}: {error_text(error)}"
        future.set_exception(error if harmless else RuntimeError(why))
    finally:
        _under_way.discard(future)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(places.release)
        del future, work  # an error refers to this frame


def at_work() -> bool:
    """Whether any thread works; otherwise the event loops have their results."""
    return bool(_under_way)


def have_ended() -> bool:
    """Whether all work has ended; waits for it up to `LAST_SECONDS`, or until Ctrl-C."""
    try:
        return not wait(list(_under_way), LAST_SECONDS).not_done
    except KeyboardInterrupt:
        return False


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
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # a fork would print a warning
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, min(cores() - spare, MOST))))


def use_all_cores() -> None:
    """Let torch use the spared cores too: the event loop of a large model has little to do. A user's number stays."""
    import torch

    if _spares:
        torch.set_num_threads(cores())
