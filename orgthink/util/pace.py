"""How fast something long comes on, and when it will be done."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pace:
    """How fast a run comes on, and how long the rest will take."""

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic, done: int | None = None) -> None:
        """`clock` tells seconds. `done` is what had ended when it starts; without it, all but the next one to end."""
        self.done = done or 0
        """How much has ended, what a run had before it was resumed included."""
        self._total, self._clock = total, clock
        self._began = self._last = clock()
        self._before = done

    def advance(self, done: int) -> None:
        """Something has ended."""
        if self._before is None:
            self._before = done - 1
        self.done, self._last = done, self._clock()

    @property
    def left(self) -> str:
        """How long the rest will take; empty at the end, and before anything has ended since it began."""
        if self._before is None or not self._before < self.done < self._total:
            return ""
        each = (self._last - self._began) / (self.done - self._before)
        return f"  about {duration(each * (self._total - self.done))} left"

    @property
    def quiet(self) -> str:
        """That it goes on though nothing has ended for a while."""
        return f"  under way for {duration(self._clock() - self._last)}{self.left}"


def duration(seconds: float) -> str:
    """Seconds as one would say them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
