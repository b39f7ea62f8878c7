"""Run many jobs at once. An exception in one cancels the others and is raised alone, without a group."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

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
