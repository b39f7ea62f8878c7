"""An event loop whose clock can be stopped while the loop is blocked on purpose.

Episodes that continue from one step to the next wait while weights are trained. Their deadlines, the timeouts of their
tools and their measured seconds use the loop's clock, so training does not count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class StandstillLoop(asyncio.SelectorEventLoop):
    """An event loop whose `time()` leaves out the seconds in `standstill`."""

    def __init__(self) -> None:
        self._paused = 0.0
        super().__init__()

    def time(self) -> float:
        return super().time() - self._paused

    @contextmanager
    def standstill(self) -> Iterator[None]:
        """Stop the clock in this block. The block must not await."""
        began = self.time()
        try:
            yield
        finally:
            self._paused += self.time() - began


@contextmanager
def standstill() -> Iterator[None]:
    """Stop the clock of the running loop, which must be a `StandstillLoop`."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, StandstillLoop), "train_policy starts one"
    with loop.standstill():
        yield
