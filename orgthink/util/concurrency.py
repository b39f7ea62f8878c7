"""Run many jobs at once. An exception in one cancels the others and is raised alone, without a group.

A client that bounds how much it does at once makes its callers wait: see `place`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar

from orgthink.util.terminal import error_text

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
def without_exit() -> Iterator[None]:
    """RuntimeError for a SystemExit of the work within: an event loop takes it for its own end."""
    try:
        yield
    except SystemExit as error:
        raise RuntimeError(f"the work raised SystemExit: {error_text(error)}") from error


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


_tell: ContextVar[Callable[[float], None] | None] = ContextVar("tell", default=None)


def tell_waits(record: Callable[[float], None]) -> None:
    """From now on tell how many seconds this task waited for a place, and tasks that it creates, until they set another
    one."""
    _tell.set(record)


class Acquirable(Protocol):
    """Places of a client, such as a semaphore."""

    async def acquire(self) -> object: ...

    def release(self) -> None: ...


SLOWNESS = 64
"""Answers in which few places double. 64 · ln 2 = 44 of them lie between two refusals."""


class AdaptivePlaces:
    """Places whose number follows what a server takes: it grows by addition and shrinks by half, as a window of TCP.

    A refusal halves it: all that was under way at that time counts as one refusal. Each answer adds a part of a place,
    so that as many answers as there are places add one; of few places it takes more, so that no more than one of
    forty requests is refused. After a series of refusals, as of a server that starts, it grows by a place an answer up
    to half of what it was. Who waits longest is next.
    """

    def __init__(self, most: int) -> None:
        self.epoch = 0
        """Decreases so far; a request remembers in which it was sent."""
        self._most = self._limit = self._threshold = float(most)
        self._taken = 0
        self._answered = True
        """Whether the server has answered since the last decrease."""
        self._closed_until = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def limit(self) -> int:
        """Places now."""
        return int(self._limit)

    async def acquire(self) -> None:
        """Wait for a place."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._admit()
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():  # it had got one
                self.release()
            raise

    def release(self) -> None:
        """Give a place back."""
        self._taken -= 1
        self._admit()

    def answered(self) -> None:
        """The server has begun an answer."""
        self._answered = True
        step = 1.0 if self._limit < self._threshold else min(1 / self._limit, self._limit / SLOWNESS)
        self._limit = min(self._most, self._limit + step)
        self._admit()

    def refused(self, epoch: int) -> None:
        """The server was too busy for a request that was sent in this epoch."""
        if epoch != self.epoch:
            return
        if self._answered:
            self._threshold = self._limit / 2
        self._limit = max(1.0, min(self._limit, self._taken) / 2)
        self.epoch, self._answered = self.epoch + 1, False

    def pause(self, seconds: float) -> None:
        """Where there is but one place, let nobody have it for so long: else all who wait were refused in turn."""
        if self.limit == 1:
            loop = asyncio.get_running_loop()
            self._closed_until = max(self._closed_until, loop.time() + seconds)
            loop.call_at(self._closed_until, self._admit)

    def _admit(self) -> None:
        """Give free places to those who wait."""
        while self._waiting and self._taken < self.limit:
            if asyncio.get_running_loop().time() < self._closed_until:
                return
            waiter = self._waiting.popleft()
            if not waiter.done():
                self._taken += 1
                waiter.set_result(None)


@contextmanager
def _timed() -> Iterator[None]:
    """Around a wait for a place: `tell_waits` has named who is told how long it was, also of one that was given up."""
    record, now = _tell.get(), asyncio.get_running_loop().time
    began = now()
    try:
        yield
    finally:
        if record is not None:
            record(now() - began)


async def pause(seconds: float) -> None:
    """Wait until a server may be asked again; recorded like a wait for a place."""
    with _timed():
        await asyncio.sleep(seconds)


@asynccontextmanager
async def place(places: Acquirable) -> AsyncIterator[None]:
    """One of the places of a client."""
    with _timed():
        await places.acquire()
    try:
        yield
    finally:
        places.release()
