"""Many jobs at once. A bug in one ends the others and is raised as itself, not as a group of exceptions."""

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
    """The results of the work on each job, in the order of the jobs; at most `limit` jobs are under way at once.

    Once `stop` is set, no further job begins; those under way are finished.
    """
    waiting = list(jobs)
    queue, results = iter(enumerate(waiting)), dict[int, T]()

    async def worker() -> None:
        for i, job in queue:  # shared: each job is taken once
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
    """Around a task group: the first exception of its tasks is raised alone, from the group."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise innermost(group) from group


def innermost(error: BaseException) -> BaseException:
    """The first exception of a group, of however many levels; any other exception is itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
