"""Virtual time: an event loop whose clock jumps to the next timer as soon as nothing is left to do.

Concurrency tests and demos on the scripted engine are deterministic and take milliseconds, however many
seconds pass inside.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from orgthink.runtime.runner import runner

T = TypeVar("T")


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
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise RuntimeError("deadlock: every task waits and no timer is set")
        self._loop.advance(timeout)
        return ready


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """As `run_main`, in virtual time."""
    with runner(VirtualTimeLoop) as running:
        return running.run(main)
