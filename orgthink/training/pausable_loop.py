"""An event loop whose time can stand still: while it is blocked on purpose, nobody who waits in it misses a deadline.

Episodes that go on from one step to the next wait while weights are trained. Their deadlines, the timeouts of their
tools and their seconds are of the loop's time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class StandstillLoop(asyncio.SelectorEventLoop):
    """`time()` is seconds in which the loop could run."""

    def __init__(self) -> None:
        self._lost = 0.0
        super().__init__()

    def time(self) -> float:
        return super().time() - self._lost

    @contextmanager
    def standstill(self) -> Iterator[None]:
        """What is done within it, without a turn of the loop, takes no time."""
        began = self.time()
        try:
            yield
        finally:
            self._lost += self.time() - began


@contextmanager
def standstill() -> Iterator[None]:
    """That of the running loop, which is a `StandstillLoop`."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, StandstillLoop), "see train_policy"
    with loop.standstill():
        yield
