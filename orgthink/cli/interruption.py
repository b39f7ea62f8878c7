"""Ctrl-C: once finishes what is under way, twice stops at once."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import TypeVar

T = TypeVar("T")

INTERRUPTED = 130
"""Exit code after Ctrl-C."""


async def interruptible(work: Callable[[asyncio.Event], Coroutine[object, object, T]]) -> T | None:
    """Do the work. Ctrl-C sets the event it is given, a second one cancels it: then there is no result."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    task = loop.create_task(work(stop))

    def interrupt() -> None:
        if stop.is_set():
            task.cancel()
            return
        stop.set()
        print("orgthink: finishing what is under way; Ctrl-C again stops now", file=sys.stderr, flush=True)

    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        return await task
    except asyncio.CancelledError:
        if not task.cancelled():
            raise
        return None
    finally:
        loop.remove_signal_handler(signal.SIGINT)
