"""Event loops: `run_main` for programs, and virtual time for tests and demos.

On virtual time the clock jumps to the next timer as soon as nothing is left to do. So concurrency tests with the
scripted engine are deterministic and take milliseconds.
"""

from __future__ import annotations

import asyncio
import logging
import selectors
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from orgthink.util.threads import at_work

T = TypeVar("T")

LAST_SECONDS = 10.0
"""Seconds that cancelled tasks get to clean up when the main work is over."""

_log = logging.getLogger(__name__)


def run_main(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, but it ends also where a task does not."""
    with runner() as running:
        return running.run(main)


@contextmanager
def runner(loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> Iterator[asyncio.Runner]:
    """As asyncio's, which waits for ever for a task that swallows its cancellation."""
    with asyncio.Runner(loop_factory=loop_factory) as running, _own_interrupts():
        running.get_loop().set_exception_handler(_report)
        try:
            yield running
        finally:
            _end(running.get_loop())


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Restore the handler of Ctrl-C, which asyncio does not always do."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():  # None: not of Python
            signal.signal(signal.SIGINT, before)


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report like asyncio, except for a Ctrl-C in a task, which the loop has raised too."""
    if not isinstance(context.get("exception"), KeyboardInterrupt):
        loop.default_exception_handler(context)


def _end(loop: asyncio.AbstractEventLoop) -> None:
    """End all tasks of a loop that does not run. Those that go on after the last seconds, or a Ctrl-C, are given up."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    try:
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks, timeout=LAST_SECONDS))
    finally:
        late = [task for task in tasks if not task.done()]
        for task in late:  # asyncio waits for those that it knows
            asyncio._unregister_task(task)
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # said below
        if late:
            _log.warning("%d task(s) do not end when they are cancelled: the program ends without them", len(late))


_POLL = 0.05
"""Longest real wait for a thread, in seconds."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """`time()`, sleeps and timeouts run on virtual seconds. Real I/O would not be waited for."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """At once: no virtual second passes while a thread works."""
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        working = at_work() and timeout != 0
        ready = super().select(_POLL if working else 0)
        if ready or working:  # no virtual second passes while a thread works
            return ready
        if timeout is None:
            raise RuntimeError("deadlock: every task waits and no timer is set")
        self._loop.advance(timeout)
        return ready


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """As `run_main`, in virtual time."""
    with runner(VirtualTimeLoop) as running:
        return running.run(main)
