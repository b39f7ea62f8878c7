"""The end of a program: what does not end when it is cancelled is waited for, but not for ever."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

LAST_SECONDS = 10.0
"""What is cancelled when the main work is over gets so long to clean up: servers are ended, files are closed."""

_log = logging.getLogger(__name__)


class Runner(asyncio.Runner):
    """As asyncio's, which waits for ever for a task that swallows its cancellation."""

    def close(self) -> None:
        loop = self.get_loop()
        late = loop.run_until_complete(_late(asyncio.all_tasks(loop)))
        for task in late:  # asyncio waits for those that it knows
            asyncio._unregister_task(task)
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # said below
        if late:
            _log.warning("%d task(s) do not end when they are cancelled: the program ends without them", len(late))
        super().close()


async def _late(tasks: set[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
    """Cancel tasks. Those that have not ended when the last seconds are over."""
    for task in tasks:
        task.cancel()
    return (await asyncio.wait(tasks, timeout=LAST_SECONDS))[1] if tasks else set()


def run_main(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, but it ends also where a task does not."""
    with Runner() as runner:
        return runner.run(main)
