"""Run many jobs at once, and limit the requests that a client sends at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import TypeVar

J = TypeVar("J")
T = TypeVar("T")

Stop = asyncio.Event | threading.Event
"""Set when no further job may begin. Signals set it from outside the event loop."""


async def run_all(
    work: Callable[[J], Awaitable[T]],
    jobs: Iterable[J],
    limit: int | None = None,
    stop: Stop | None = None,
) -> list[T]:
    """The results of all jobs, in the order of the jobs. At most `limit` jobs run at once. An exception cancels the
    others and is raised without a group.

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
    """The first exception of a nested group; any other exception unchanged."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


_tell: ContextVar[Callable[[float], None] | None] = ContextVar("tell", default=None)


def tell_waits(record: Callable[[float], None]) -> None:
    """Report the seconds that this task and its children wait for a place."""
    _tell.set(record)


SLOWNESS = 64
"""Answers in which a few places double: 64 · ln 2 = 44 answers lie between two refusals."""


class AdaptivePlaces:
    """Places whose number adapts to a server: it grows by addition and is halved by a refusal, as a window of TCP.

    Refusals of requests that were sent together count once. Each answer adds a part of a place; with few places a
    smaller part, so that at most one of forty requests is refused. After a series of refusals, as of a server that
    starts, each answer adds a place up to half of the last limit. Places are given in the order of the requests.
    """

    def __init__(self, most: int) -> None:
        self.epoch = 0
        """Number of decreases; a request remembers the number at which it was sent."""
        self._most = self._limit = self._threshold = float(most)
        self._taken = 0
        self._answered = True
        """Whether the server has answered since the last decrease."""
        self._closed = 0
        """Pauses that have closed a single place."""
        self._turn, self._changed = asyncio.Lock(), asyncio.Event()

    @property
    def limit(self) -> int:
        """Places now."""
        return int(self._limit)

    async def acquire(self) -> None:
        """Wait for a place."""
        async with self._turn:  # only the first one waits for a change, and the others for it
            while self._taken >= self.limit or self._closed:
                self._changed.clear()
                await self._changed.wait()
            self._taken += 1

    def release(self) -> None:
        """Give a place back."""
        self._taken -= 1
        self._changed.set()

    def answered(self) -> None:
        """The server has begun an answer."""
        self._answered = True
        step = 1.0 if self._limit < self._threshold else min(1 / self._limit, self._limit / SLOWNESS)
        self._limit = min(self._most, self._limit + step)
        self._changed.set()

    def refused(self, epoch: int) -> None:
        """The server was too busy for a request that was sent in this epoch."""
        if epoch != self.epoch:
            return
        if self._answered:
            self._threshold = self._limit / 2
        self._limit = max(1.0, min(self._limit, self._taken) / 2)
        self.epoch, self._answered = self.epoch + 1, False

    async def pause(self, seconds: float) -> None:
        """Wait before another request, which is reported like a wait for a place. Meanwhile a single place is closed,
        so that waiting requests are not refused one after the other."""
        closes = self.limit == 1
        self._closed += closes
        try:
            with _timed():
                await asyncio.sleep(seconds)
        finally:
            self._closed -= closes
            self._changed.set()


@contextmanager
def _timed() -> Iterator[None]:
    """Report the length of a wait to the function of `tell_waits`."""
    record, now = _tell.get(), asyncio.get_running_loop().time
    began = now()
    try:
        yield
    finally:
        if record is not None:
            record(now() - began)


@asynccontextmanager
async def place(places: asyncio.Semaphore | AdaptivePlaces) -> AsyncIterator[None]:
    """One of the places of a client."""
    with _timed():
        await places.acquire()
    try:
        yield
    finally:
        places.release()
