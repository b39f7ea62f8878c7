"""How long the steps of event loops take, in seconds of processor time of their thread: a busy machine adds nothing.

Steps of the tests' own tasks, such as those of a client, do not count, nor does the collection of garbage, nor what
other threads do: a server that a test runs in one of them has a loop of its own.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import thread_time
from typing import Any

TESTS = str(Path(__file__).parent)

LONGEST = 0.1
"""Longest step that a server or an evaluation may have, in seconds."""

NOTED = 0.005
"""Seconds of a step that is noted."""


@dataclass(slots=True)
class Steps:
    """The steps so far."""

    seconds: float = 0.0
    """Of all together."""
    long: list[tuple[float, str]] = field(default_factory=list)
    """Seconds and work of the long ones, the longest first."""


@contextmanager
def short_steps(longest: float = LONGEST) -> Iterator[Steps]:
    """Fail if a step of an event loop takes longer. Yields the steps so far, for a look at them."""
    steps = Steps()
    collected, own = 0.0, threading.get_ident()

    def collecting(phase: str, info: dict[str, int]) -> None:
        nonlocal collected
        if threading.get_ident() == own:
            collected += thread_time() * (1 if phase == "stop" else -1)

    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        nonlocal collected
        if threading.get_ident() != own:
            return run(handle)
        what, collected = _what(handle), 0.0
        before = thread_time()
        run(handle)
        took = thread_time() - before - collected
        if what is None:
            return
        steps.seconds += took
        if took > NOTED:
            steps.long.append((took, what))
            steps.long.sort(reverse=True)

    gc.callbacks.append(collecting)
    asyncio.Handle._run = timed  # type: ignore[method-assign]
    try:
        yield steps
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]
        gc.callbacks.remove(collecting)
    slow = [f"{seconds:.2f} s: {what}" for seconds, what in steps.long if seconds > longest]
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
