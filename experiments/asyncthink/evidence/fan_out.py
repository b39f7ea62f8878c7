"""What a program does that knows how a problem is listed: a worker for every part, and no organizer.

It is the reference for what an organizer learns: its forks depend on nothing but the problem's data.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from orgthink_pocket.tasks.countdown_linked import chains_of
from orgthink_pocket.tasks.parts import NAMES

from orgthink.episode import Problem
from orgthink.organizations.prompts import prompt
from orgthink.runtime import Agent, Session

_RETURN = re.compile(r"<RETURN>(.*)")
_RESULT = re.compile(r"! \w+ ([^;<]+?) (?:left \d+ )?;")


@dataclass(frozen=True, slots=True)
class FanOut:
    """Forks the worker of AsyncThink for each part of a problem at once, and lists what they return."""

    prompts: str = "pocket-base"
    """Prompt style of the workers."""
    by_chains: bool = False
    """Whether parts that need each other go to one worker, in turn."""
    name: str = "fan-out"

    roles = ("worker",)

    async def run(self, problem: Problem, session: Session) -> str | None:
        root, capacity = session.controller(), session.capacity
        parts = [[name] for name in NAMES[: len(problem.data["parts"])]]
        groups = chains_of(problem) if self.by_chains else parts
        for first, *others in groups:
            about = {"query": " ; ".join([first, *others]), "context": problem.instruction}
            worker = session.agent("worker", prompt(self.prompts, "worker", problem, capacity=capacity, **about))
            session.fork(root, first, worker, Agent.complete)
        texts = [(await session.join(root, first)).text for first, *_ in groups]
        returned = (found[1] for text in texts if (found := _RETURN.search(text)))
        return " ; ".join(result for text in returned for result in _RESULT.findall(text))
