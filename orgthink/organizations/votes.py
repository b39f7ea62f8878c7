"""Votes: independent agents with the same prompt, and the most frequent answer wins.

`parallel` has an agent for each place of the pool (section 4 of AsyncThink, the stronger baseline); `majority-vote`
has a fixed number (section 4.4 of ParaManager).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from orgthink.grammar.asyncthink import DIALECT, Dialect
from orgthink.organizations.prompts import prompt
from orgthink.organizations.request import new_caller
from orgthink.organizations.sequential import think
from orgthink.record.episode import Message, Problem
from orgthink.runtime.agent import Agent
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.tasks.vote import prepared
from orgthink.tools.agents import voted
from orgthink.util.errors import require_at_least


@dataclass(frozen=True)
class Parallel(Organization):
    """As many agents as the pool holds think at the same time; the most frequent solutions win."""

    prompts: str = "paper"
    """Prompt style."""
    dialect: Dialect = DIALECT
    """Spelling of the tags."""
    name: str = "parallel"

    roles = ("thinker",)

    def thinkers(self, capacity: int) -> int:
        """How many vote."""
        return capacity

    def identical_agents(self, capacity: int) -> dict[str, int]:
        """How many are asked the same, by role."""
        return {"thinker": self.thinkers(capacity)}

    async def run(self, problem: Problem, session: Session) -> str | None:
        messages = prompt(self.prompts, "sequential", problem)
        return await think_and_vote("thinker", messages, self.thinkers(session.capacity), session, self.dialect)


async def think_and_vote(
    role: str, messages: tuple[Message, ...], count: int, session: Session, dialect: Dialect
) -> str | None:
    """The vote of so many agents of a role that get the same prompt, or of those that the budget allows."""

    async def work(thinker: Agent) -> str | None:
        return await prepared(session.problem, await think(thinker, session, dialect))

    new = partial(new_caller, session, role, messages)
    return await voted(session, session.controller(), session.problem, count, new, work)


@dataclass(frozen=True)
class MajorityVote(Parallel):
    """A fixed number of agents think; the most frequent answer wins. Agents beyond the capacity wait."""

    samples: int = 8
    """Thinkers that vote."""
    name: str = "majority-vote"

    def __post_init__(self) -> None:
        require_at_least(1, self, "samples")

    def thinkers(self, capacity: int) -> int:
        return self.samples
