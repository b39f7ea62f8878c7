"""What an episode may use. Forks inherit the budget, and what they spend is charged to every account above.

An organization may reserve a part of it for its last answer (`Session.sparing`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf
from typing import ClassVar

from orgthink.record.episode import Exhausted
from orgthink.util.errors import ErrorKind, require_at_least

TURNS = 1000
"""Turns of an episode that nothing else would end."""
FORKS = 10_000
"""Agents forked in an episode whose budget does not say how many: each takes some kilobytes until it is stored."""


MOST_CAPACITY = 1_000_000
"""Largest pool of agents."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What an episode may use; `None` is no limit."""

    capacity: int = 2
    """c: agents that may decode at once; a root that decodes takes one place."""
    max_tokens: int | None = None
    """Tokens that each agent may sample, over all its segments. `None`: each Join renews the budget of its sampling."""
    max_episode_tokens: int | None = None
    """Tokens that all agents of an episode may sample. Agents that work at once may overdraw it by a chunk each. Where
    a server hides thoughts, the chunk is the whole reply."""
    turns: int | None = None
    """Requests to an engine, in the episode."""
    cost: float | None = None
    """Money or cost units of the episode, where they are known. The last call may overdraw them, and so may tools at
    work at once."""
    forks: int | None = None
    """Agents forked in the episode, at any depth; `None` for `FORKS`."""
    depth: int = 1
    """Levels of forks: 1 lets an organizer have workers, 2 lets those have their own. Code takes no level."""
    episode_seconds: float | None = None
    """Deadline of the episode."""
    agent_seconds: float | None = None
    """Deadline of each forked agent, from the moment it starts."""
    answer_seconds: float | None = None
    """Deadline of an approval."""
    grace: float = 1.0
    """Seconds that cancelled work gets to clean up."""

    def __post_init__(self) -> None:
        if not isinstance(self.capacity, int) or not 1 <= self.capacity <= MOST_CAPACITY:
            raise ValueError(f"capacity is {self.capacity}: it must be a whole number from 1 to {MOST_CAPACITY:,}")
        require_at_least(0, self, *(item.name for item in fields(self)))

    def account(self) -> Account:
        """The account of an episode. An agent whose budget is renewed at every Join could go on without end, so turns
        are limited where nothing else would end the episode."""
        ends = (self.max_episode_tokens, self.turns, self.max_tokens, self.episode_seconds)
        turns = TURNS if all(limit is None for limit in ends) else self.turns
        return Account(tokens=self.max_episode_tokens, turns=turns, cost=self.cost, forks=self.forks, depth=self.depth)


class BudgetExhausted(Exception):
    """A budget ran out."""

    kind: ClassVar[ErrorKind] = ErrorKind.BUDGET

    def __init__(self, name: str, value: float, limit: float) -> None:
        """`name` of the budget's field, and how much of the limit was used."""
        super().__init__(f"budget exhausted: {name}")
        self.exhausted = Exhausted(name, value, limit)


class Account:
    """What is left of a budget. Spending is charged to every account above it as well."""

    def __init__(
        self, *, depth: int = 1, parent: Account | None = None, levels: int = 1, **amounts: float | None
    ) -> None:
        """`amounts` are limits of tokens, turns, cost and forks; `levels` of forks lie between it and its parent."""
        self._amounts, self._depth, self._parent, self._levels = amounts, depth, parent, levels
        self._spent: dict[str, float] = {}

    def inherit(self, *, deeper: bool = True, **amounts: float | None) -> Account:
        """The account of a fork: its own limits, if given, within what is left of these.

        One level deeper, unless it is code: that takes no level, so that the lowest agents may use tools.
        """
        if deeper and self.depth < 1:
            used = self._depth_used
            raise BudgetExhausted("depth", used, used + self.depth)
        levels = 1 if deeper else 0
        return Account(**amounts, depth=self.depth - levels, parent=self, levels=levels)

    @property
    def depth(self) -> int:
        """Levels of forks that are still allowed."""
        above = self._parent
        return self._depth if above is None else min(self._depth, above.depth - self._levels)

    def left(self, name: str) -> float:
        """What may still be spent; infinity where nothing limits it."""
        own = self._own(name)
        return own if self._parent is None else min(own, self._parent.left(name))

    def _own(self, name: str) -> float:
        """What the limit of this account itself leaves."""
        limit = self._amounts.get(name)
        return inf if limit is None else limit - self._spent.get(name, 0)

    def spend(self, name: str, amount: float) -> None:
        """Record spending that has happened; it may overdraw."""
        self._spent[name] = self._spent.get(name, 0) + amount
        if self._parent is not None:
            self._parent.spend(name, amount)

    def require(self, name: str, amount: float = 1) -> None:
        """Spend `amount`; raises BudgetExhausted if less is left."""
        if self.left(name) < amount:
            raise self._exhausted(name)
        self.spend(name, amount)

    def require_left(self, *names: str, promised: float = 0) -> None:
        """Raises BudgetExhausted if no more than `promised` is left of one of these."""
        for name in names:
            if self.left(name) <= promised:
                raise self._exhausted(name)

    def exhausted(self, *names: str) -> Exhausted | None:
        """The first of these of which nothing is left."""
        try:
            self.require_left(*names)
        except BudgetExhausted as error:
            return error.exhausted
        return None

    def _exhausted(self, name: str) -> BudgetExhausted:
        """The error of the account, this or one above, of which least is left."""
        if self._parent is not None and self._parent.left(name) < self._own(name):
            return self._parent._exhausted(name)
        limit = self._amounts.get(name)
        assert limit is not None, f"{name} has no limit"
        return BudgetExhausted(name, self._spent.get(name, 0), limit)

    @property
    def _depth_used(self) -> int:
        """Levels of forks above."""
        return 0 if self._parent is None else self._levels + self._parent._depth_used
