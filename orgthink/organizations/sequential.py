"""Sequential thinking: one agent, one trace. The baseline."""

from __future__ import annotations

from dataclasses import dataclass

from orgthink.grammar.actions import Answer
from orgthink.grammar.asyncthink import DIALECT, AsyncThinkScanner, Dialect
from orgthink.organizations.prompts import prompt
from orgthink.organizations.request import CALL, boxed_answer, new_caller, unmarked_answer
from orgthink.record.episode import Problem
from orgthink.runtime.agent import Agent
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session


@dataclass(frozen=True)
class Sequential(Organization):
    """One agent thinks to the end, then answers."""

    prompts: str = "paper"
    """Prompt style."""
    dialect: Dialect = DIALECT
    """Spelling of the tags."""
    name: str = "sequential"

    roles = ("thinker",)

    async def run(self, problem: Problem, session: Session) -> str | None:
        return await think(
            new_caller(session, "thinker", prompt(self.prompts, "sequential", problem)), session, self.dialect
        )


async def think(thinker: Agent, session: Session, dialect: Dialect = DIALECT) -> str | None:
    """Let an agent think until it answers, in tags or boxed; otherwise its text is the answer, and a format error. Tags
    within `<think>` do not count."""
    thinker.pay(CALL)
    async for action in thinker.act(AsyncThinkScanner("answer", dialect=dialect)):
        if isinstance(action, Answer):
            return action.text.strip()
    answer = boxed_answer(thinker, session.problem)
    if answer is None:
        session.unanswered(thinker)
        return unmarked_answer(thinker, dialect)
    return answer
