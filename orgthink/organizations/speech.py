"""One call of a model: an agent thinks, says something, and is done. What organizations of such calls share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from orgthink.episode import Message, Status, StopReason
from orgthink.grammar.solution import after_thinking, read_proposal
from orgthink.runtime.agent import Agent
from orgthink.runtime.session import Session

CALL = 1.0
"""Cost units of a call, whatever is said in it (Table 7 of ParaManager)."""
NOTHING = "none"
"""What a role is shown where there is no solution."""


class Said(NamedTuple):
    """What an agent said once it had thought: a solution or a report."""

    text: str
    whole: bool
    """Whether there is a text and it came to its end."""
    agent: Agent

    @property
    def answer(self) -> str | None:
        return read_proposal(self.text, ended=True).answer


def caller(session: Session, role: str, messages: tuple[Message, ...]) -> Agent:
    """An agent for one call. Its cost is known from the start: one that never gets its turn costs nothing."""
    agent = session.agent(role, messages)
    agent.spend(0.0)
    return agent


@contextmanager
def charged(agent: Agent) -> Iterator[None]:
    """Charge the call that is made within, if it is made.

    That happens when it is over, however it ends: who spends the last unit beforehand could not decode any more.
    """
    try:
        yield
    finally:
        if agent.turns:
            agent.spend(CALL)


async def hear(session: Session, root: Agent, key: str, role: str, messages: tuple[Message, ...]) -> Said:
    """Let a new agent of a role speak to the end of its text, and wait for it."""
    agent = caller(session, role, messages)
    result = await session.call(root, key, agent, _speak)
    return Said(result.text, result.status is Status.OK, agent)


async def _speak(agent: Agent) -> str | None:
    with charged(agent):
        await agent.complete()
    return visible_text(agent)


def visible_text(agent: Agent) -> str | None:
    """What an agent has written so far after its thinking, which is all that others see; `None` for nothing."""
    return after_thinking(agent.text, ended=agent.stop is StopReason.DONE) or None


def answered(answer: str | None, draft: Said, session: Session) -> str | None:
    """The answer. A missing one is the fault of whoever wrote the draft that stands, unless the engine failed it."""
    if answer is None and draft.agent.error is None:
        session.unanswered(draft.agent)
    return answer
