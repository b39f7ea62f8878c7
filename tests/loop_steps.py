"""How long the steps of event loops take, in seconds of processor time of their thread: a busy machine adds nothing.

Steps of the tests' own tasks, such as those of a client, do not count, nor does the collection of garbage.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import thread_time
from typing import Any

TESTS = str(Path(__file__).parent)

LONGEST = 0.1
"""Longest step that a server or an evaluation may have, in seconds."""


@contextmanager
def short_steps(longest: float = LONGEST) -> Iterator[list[tuple[float, str]]]:
    """Fail if a step of an event loop takes longer. Yields the steps so far, the longest first, for a look at them."""
    steps: list[tuple[float, str]] = []
    collected = 0.0

    def collecting(phase: str, info: dict[str, int]) -> None:
        nonlocal collected
        collected += thread_time() * (1 if phase == "stop" else -1)

    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        nonlocal collected
        what, collected = _what(handle), 0.0
        before = thread_time()
        run(handle)
        took = thread_time() - before - collected
        if what is not None and took > longest / 20:
            steps.append((took, what))
            steps.sort(reverse=True)

    gc.callbacks.append(collecting)
    asyncio.Handle._run = timed  # type: ignore[method-assign]
    try:
        yield steps
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]
        gc.callbacks.remove(collecting)
    slow = [f"{seconds:.2f} s: {what}" for seconds, what in steps if seconds > longest]
    assert not slow, "\n".join(["the event loop stood still:", *slow[:10]])


def _what(handle: asyncio.Handle) -> str | None:
    """The work of a step; `None` for that of a test."""
    task: Any = getattr(handle._callback, "__self__", None)
    if not isinstance(task, asyncio.Task):
        return repr(handle._callback)
    coroutine: Any = task.get_coro()
    code = getattr(coroutine, "cr_code", None) or getattr(coroutine, "ag_code", None)
    own = code is not None and code.co_filename.startswith(TESTS)
    return None if own else getattr(coroutine, "__qualname__", repr(coroutine))
