"""Parallel coordinated reasoning (PaCoRe, arXiv 2601.05593): rounds of agents side by side that read each other.

    w_1 agents → their conclusions → w_2 agents that read these → … → one agent, whose answer it is

A conclusion is an agent's text after its thinking, compacted to its end: that is the message to the next round. The
paper trains its model with reinforcement learning to use such messages instead of to solve the problem alone; here any
model is prompted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from orgthink.organizations.request import Reply, new_caller, single_reply
from orgthink.record.episode import Message, Problem, Status
from orgthink.runtime.agent import Agent
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.tasks.vote import all_prepared, vote
from orgthink.util.errors import UserError, require_at_least
from orgthink_arena.prompts import prompt

_MARK = re.compile(r"<(?=\s*(?:/\s*)?message)", re.IGNORECASE)
"""What would look like the beginning or the end of a message within one."""


async def ask_all(
    session: Session, root: Agent, role: str, prompts: Mapping[str, tuple[Message, ...]]
) -> dict[str, Reply]:
    """Send prompts to new agents of a role in parallel, and wait for their replies. Agents that the budget forbids are
    left out, and the root's trace records it."""
    agents: dict[str, Agent] = {}
    with session.until_spent(root):
        for key, messages in prompts.items():
            agent = new_caller(session, role, messages)
            session.fork(root, key, agent, single_reply)
            agents[key] = agent
    results = {key: await session.join(root, key) for key in agents}
    return {key: Reply(result.text, result.status is Status.OK, agents[key]) for key, result in results.items()}


@dataclass(frozen=True)
class Pacore(Organization):
    """Rounds of agents in parallel, each reading the conclusions of the round before; the last agent answers."""

    prompts: str = "paper"
    """Prompt style."""
    widths: tuple[int, ...] = (8, 4, 1)
    """w_1 … w_R: agents of each round. The last round has one."""
    message_characters: int = 4000
    """A message is the end of a conclusion, of so many characters."""
    name: str = "pacore"

    roles = ("thinker", "synthesizer")

    def __post_init__(self) -> None:
        require_at_least(1, self, "message_characters")
        if not self.widths or min(self.widths) < 1 or self.widths[-1] != 1:
            raise UserError(
                f"widths are {list(self.widths)}: name at least one agent for each round, and one for the last"
            )
        for template in ("sequential", "synthesis"):
            prompt(self.prompts, template, Problem("", "", ""))

    def identical_agents(self, capacity: int) -> dict[str, int]:
        """How many agents get the same prompt, by role."""
        return {"thinker": self.widths[0], "synthesizer": max(self.widths[1:], default=0)}

    async def run(self, problem: Problem, session: Session) -> str | None:
        root, answers = session.controller(), list[str]()
        session.so_far = lambda: vote(problem, answers)
        messages: list[str] = []
        for n, width in enumerate(self.widths, 1):
            wanted = dict.fromkeys([f"{n}.{i}" for i in range(1, width + 1)], self._prompt(problem, messages))
            replies = list((await ask_all(session, root, self.roles[n > 1], wanted)).values())
            whole = [reply for reply in replies if reply.whole]
            if found := [reply.answer for reply in whole if reply.answer is not None]:
                answers[:] = await all_prepared(problem, found)  # a later round has read those before
            messages = [reply.text[-self.message_characters :] for reply in whole] or messages
            if len(replies) < width:
                break  # a budget is spent
        if not answers and replies:
            session.unanswered(replies[-1].agent)
        return vote(problem, answers)

    def _prompt(self, problem: Problem, messages: list[str]) -> tuple[Message, ...]:
        """Without messages the problem alone."""
        if not messages:
            return prompt(self.prompts, "sequential", problem)
        unmarked = [_MARK.sub("&lt;", text) for text in messages]
        numbered = "\n\n".join(f"<message {i}>\n{text}\n</message {i}>" for i, text in enumerate(unmarked, 1))
        return prompt(self.prompts, "synthesis", problem, messages=numbered, solution=messages[0])
