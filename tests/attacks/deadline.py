"""A generous deadline for work that used to take minutes or for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, work: Callable[[], T]) -> T:
    """What the work gives or raises; AssertionError if it takes longer."""
    found: list[T] = []
    wrong: list[Exception] = []

    def run() -> None:
        try:
            found.append(work())
        except Exception as error:
            wrong.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert found or wrong, "it hangs"
    if wrong:
        raise wrong[0]
    return found[0]
