"""What an evaluation may spend in total. No episode begins that would probably go beyond; those that run are finished.

What an episode will cost is not known before. It is taken to be the mean of those that have ended, so that a run ends
near its bound: below it by an episode, or above it by as much as the last episodes cost more than the mean. The first
episodes begin without a mean, as many as run at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from orgthink.measure.usage import Prices, sampled_tokens, spent
from orgthink.record.episode import Episode


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of a whole evaluation, episodes that failed and were run again included; `None` is no bound."""

    dollars: float | None = None
    """Dollars by the prices."""
    tokens: int | None = None
    """Sampled tokens."""

    def __post_init__(self) -> None:
        if not all(bound is None or bound > 0 for bound in (self.dollars, self.tokens)):
            raise ValueError("a bound on what is spent is above 0")


class Bound:
    """One bound, and what has been spent of it."""

    def __init__(self, option: str, most: float, cost: Callable[[Episode], float]) -> None:
        self.option = option
        """The option of the command line that sets it."""
        self._most, self._cost = most, cost
        self._spent, self._ended = 0.0, 0

    def charge(self, episode: Episode) -> None:
        """An episode has ended."""
        self._spent, self._ended = self._spent + self._cost(episode), self._ended + 1

    def allows(self, episodes: int) -> bool:
        """Whether so many further episodes probably fit."""
        mean = self._spent / self._ended if self._ended else 0.0
        return self._spent < self._most and self._spent + episodes * mean <= self._most

    def __str__(self) -> str:
        return f"{self._spent:.6g} of {self.option} {self._most:g} are spent: another episode would probably go beyond"


class Spending:
    """Lets episodes begin while the bounds allow it."""

    def __init__(self, bounds: Bounds, prices: Prices, before: Iterable[Episode]) -> None:
        """`before` are the episodes that have ended so far."""
        self._bounds: list[Bound] = []
        if bounds.dollars is not None:
            self._bounds.append(Bound("--max-dollars", bounds.dollars, lambda episode: spent(episode, prices) or 0.0))
        if bounds.tokens is not None:
            self._bounds.append(Bound("--max-total-tokens", bounds.tokens, sampled_tokens))
        self._running = 0
        self._changed = asyncio.Condition()
        for episode in before if self._bounds else ():
            self._charge(episode)

    @property
    def reached(self) -> Bound | None:
        """The bound by which no further episode may begin, beside those that run; `None` if one may."""
        return next((bound for bound in self._bounds if not bound.allows(self._running + 1)), None)

    async def admits(self, stop: asyncio.Event | None = None) -> bool:
        """Whether another episode may begin; none once `stop` is set. Waits where that depends on those that run."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.reached is None or not self._running)
            if self.reached is not None or (stop is not None and stop.is_set()):
                return False
            self._running += 1
            return True

    async def ended(self, episode: Episode) -> None:
        """An episode that was admitted has ended."""
        async with self._changed:
            self._running -= 1
            self._charge(episode)
            self._changed.notify_all()

    def _charge(self, episode: Episode) -> None:
        for bound in self._bounds:
            bound.charge(episode)
