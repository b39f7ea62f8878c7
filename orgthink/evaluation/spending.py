"""Limits on what a whole evaluation spends: no episode starts that would probably exceed them.

The cost of an episode is not known before it ends. It is estimated as the mean of the episodes that have ended, so that
a run ends near its limit. The first episodes start without an estimate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from orgthink.measure.usage import Prices, sampled_tokens, spent
from orgthink.record.episode import Episode


@dataclass(slots=True)
class Bound:
    """One limit, and what has been spent of it."""

    option: str
    """Option of the command line that sets it."""
    most: float
    """The limit."""
    cost: Callable[[Episode], float]
    """What an episode costs."""
    total: float = 0.0
    """Spent so far."""
    ended: int = 0
    """Episodes that have ended."""

    def allows(self, episodes: int) -> bool:
        """Whether this number of further episodes probably fits."""
        mean = self.total / self.ended if self.ended else 0.0
        return self.total < self.most and self.total + episodes * mean <= self.most

    def __str__(self) -> str:
        return f"{self.total:.6g} of {self.option} {self.most:g} are spent"


class Spending:
    """Lets episodes start while the limits allow it."""

    def __init__(
        self, max_dollars: float | None, max_total_tokens: int | None, prices: Prices, before: Iterable[Episode]
    ) -> None:
        """`before` are the episodes that have ended so far."""
        self._bounds: list[Bound] = []
        if max_dollars is not None:
            self._bounds.append(Bound("--max-dollars", max_dollars, lambda episode: spent(episode, prices) or 0.0))
        if max_total_tokens is not None:
            self._bounds.append(Bound("--max-total-tokens", max_total_tokens, sampled_tokens))
        self._running = 0
        self._changed = asyncio.Condition()
        for episode in before if self._bounds else ():
            self._charge(episode)

    @property
    def reached(self) -> Bound | None:
        """The limit that forbids a further episode next to those that run; `None` if one may start."""
        return next((bound for bound in self._bounds if not bound.allows(self._running + 1)), None)

    async def admits(self, stop: asyncio.Event | None = None) -> bool:
        """Whether another episode may start; not after `stop` is set. Waits for running episodes that decide it."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.reached is None or not self._running)
            if self.reached is not None or (stop is not None and stop.is_set()):
                return False
            self._running += 1
            return True

    async def ended(self, episode: Episode) -> None:
        """An admitted episode has ended."""
        async with self._changed:
            self._running -= 1
            self._charge(episode)
            self._changed.notify_all()

    def _charge(self, episode: Episode) -> None:
        for bound in self._bounds:
            bound.total, bound.ended = bound.total + bound.cost(episode), bound.ended + 1
