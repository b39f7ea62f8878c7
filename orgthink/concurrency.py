"""Run many jobs at once. An exception in one cancels the others and is raised alone, without a group.

A client that bounds what it does at once makes its callers wait. That time says nothing about the server, so deadlines
stand still in it: see `place` and `on_hold`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar

J = TypeVar("J")
T = TypeVar("T")


async def run_all(
    work: Callable[[J], Awaitable[T]],
    jobs: Iterable[J],
    limit: int | None = None,
    stop: asyncio.Event | None = None,
) -> list[T]:
    """The results of all jobs, in the order of the jobs. At most `limit` jobs run at once.

    Once `stop` is set, no further job begins; running jobs are finished.
    """
    waiting = list(jobs)
    queue, results = iter(enumerate(waiting)), dict[int, T]()

    async def worker() -> None:
        for i, job in queue:  # the workers share the queue
            if stop is not None and stop.is_set():
                return
            results[i] = await work(job)

    with first_error():
        async with asyncio.TaskGroup() as workers:
            for _ in range(len(waiting) if limit is None else min(limit, len(waiting))):
                workers.create_task(worker())
    return [results[i] for i in sorted(results)]


@contextmanager
def first_error() -> Iterator[None]:
    """Wraps a task group and raises the first exception of its tasks instead of the group."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise innermost(group) from group


def innermost(error: BaseException) -> BaseException:
    """The first exception of a nested group; an exception that is no group is returned unchanged."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class Holdable(Protocol):
    """A clock that stands still while it is held. It may be held several times at once."""

    def hold(self) -> None: ...

    def release(self) -> None: ...

    def limit(self) -> asyncio.TimerHandle:
        """End what it measures if a task keeps the place that it now has for longer than is left, held or not.

        To be cancelled with the place. Else those who have places and those who wait for one could wait for ever.
        """


_clocks: ContextVar[tuple[Holdable, ...]] = ContextVar("clocks", default=())
_tell: ContextVar[Callable[[float], None] | None] = ContextVar("tell", default=None)


@contextmanager
def on_hold(clock: Holdable) -> Iterator[None]:
    """Tasks that are created within, and theirs, hold the clock while they wait for a place."""
    token = _clocks.set((*_clocks.get(), clock))
    try:
        yield
    finally:
        _clocks.reset(token)


def tell_waits(record: Callable[[float], None]) -> None:
    """From now on tell how many seconds this task waited for a place, and tasks that it creates, until they set another
    one."""
    _tell.set(record)


@asynccontextmanager
async def place(places: asyncio.Semaphore) -> AsyncIterator[None]:
    """One of the places of a client. The clocks of this task are held until there is one, and limit its time there."""
    clocks, record, now = _clocks.get(), _tell.get(), asyncio.get_running_loop().time
    began = now()
    for clock in clocks:
        clock.hold()
    try:
        await places.acquire()
    finally:
        for clock in clocks:
            clock.release()
        if record is not None:
            record(now() - began)
    limits = [clock.limit() for clock in clocks]
    try:
        yield
    finally:
        for limit in limits:
            limit.cancel()
        places.release()
