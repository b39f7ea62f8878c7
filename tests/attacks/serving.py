"""The loopback server of the engines' tests, on an event loop of its own: for commands, which have one themselves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from loopback import Play, Server, loopback


@contextmanager
def serving(*plays: Play) -> Iterator[Server]:
    """A server that plays these in order."""
    ready, running = threading.Event(), list[tuple[Server, asyncio.AbstractEventLoop, asyncio.Event]]()

    async def serve() -> None:
        async with loopback(*plays) as server:
            over = asyncio.Event()
            running.append((server, asyncio.get_running_loop(), over))
            ready.set()
            await over.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(10)
    server, loop, over = running[0]
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(10)
