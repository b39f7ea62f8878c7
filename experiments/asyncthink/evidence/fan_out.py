"""What a program does that knows how a problem is listed: a worker for every part, and no organizer.

It is the reference for what an organizer learns: its forks depend on nothing but the number of parts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from orgthink_pocket.tasks.parts import NAMES

from orgthink.episode import Problem
from orgthink.organizations.prompts import prompt
from orgthink.runtime import Agent, Session

_RETURNED = re.compile(r"<RETURN> ! \w+ ([^;<]+?) ;")


@dataclass(frozen=True, slots=True)
class FanOut:
    """Forks the worker of AsyncThink for each part of a problem at once, and lists what they return."""

    prompts: str = "pocket-base"
    """Prompt style of the workers."""
    name: str = "fan-out"

    roles = ("worker",)

    async def run(self, problem: Problem, session: Session) -> str | None:
        root, capacity = session.controller(), session.capacity
        names = NAMES[: len(problem.data["parts"])]
        for name in names:
            about = {"query": name, "context": problem.instruction}
            worker = session.agent("worker", prompt(self.prompts, "worker", problem, capacity=capacity, **about))
            session.fork(root, name, worker, Agent.complete)
        texts = [(await session.join(root, name)).text for name in names]
        return " ; ".join(found[1] for text in texts if (found := _RETURNED.search(text)))
