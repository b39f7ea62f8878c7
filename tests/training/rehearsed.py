"""Graded episodes of rehearsals: the real organization, tools that fail now and then, a teacher's replies."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from orgthink_pocket.lessons.rehearsals import CAPACITY, Player, Rehearsal, helping, managing

from orgthink.engines.engine import Context
from orgthink.engines.tokenizer import Tokenizer
from orgthink.episode import Episode, Sampling
from orgthink.evaluation import distinct, grade
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.store import RunFolder
from orgthink.tasks import TASKS
from orgthink.tools.faults import Faults

TASK = "arithmetic-mini"
POOL = {"a": "arithmetic", "b": "countdown"}


class Chatting(Player):
    """A player whose tokenizer's template makes the turns, as engines with ids do."""

    def turn(self, context: Context, text: str) -> tuple[str, tuple[int, ...] | None]:
        assert self._tokenizer is not None
        return self._tokenizer.turn(text, context)


def rehearsed(
    tokenizer: Tokenizer | None, *, n: int = 4, samples: int = 2, rate: float = 0.3, player: type[Player] = Player
) -> list[Episode]:
    """Graded episodes of n problems; without a tokenizer they have no ids, as from an endpoint that chats."""
    organization = Rehearsal(pool=POOL, faults=Faults(rate, 7))
    backing = Backing(player(managing(frozenset(organization.tools), 4), tokenizer), Sampling(512, seed=3))
    roles = {name: Backing(Player(helping(told)), Sampling(512, seed=3)) for name, told in POOL.items()}

    async def all_of_them() -> list[Episode]:
        limits = Limits(capacity=CAPACITY)
        return await asyncio.gather(
            *(
                attempt(organization, problem, backing, roles=roles, limits=limits, sample=sample)
                for problem in distinct(TASK, "train", 0, n)
                for sample in range(samples)
            )
        )

    return [grade(episode, TASKS[TASK]) for episode in run_virtual(all_of_them())]


def recorded(path: Path, episodes: Sequence[Episode]) -> Path:
    """A run folder with these episodes."""
    with RunFolder.create(path, "eval", None).journal() as journal:
        for episode in episodes:
            journal.append(episode)
    return path
