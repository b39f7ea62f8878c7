"""An organization in one file: drafts at the same time, then an editor who merges them.

orgthink run "Name three primes above 100." --organization examples/organization.py:Drafts --url http://localhost:8000/v1
"""

from __future__ import annotations

from dataclasses import dataclass

from orgthink import Agent, Message, Organization, Problem, Session


@dataclass(frozen=True)
class Drafts(Organization):
    """Thinkers write drafts side by side, and an editor merges them."""

    drafts: int = 2
    """Number of drafts; `--set drafts=3` changes it."""

    roles = ("thinker", "editor")

    async def run(self, problem: Problem, session: Session) -> str | None:
        root = session.controller()
        keys = [f"draft-{i}" for i in range(1, self.drafts + 1)]
        for key in keys:
            thinker = session.agent("thinker", (Message("user", problem.text),))
            session.fork(root, key, thinker, Agent.complete)  # starts at once
        drafts = [(await session.join(root, key)).text for key in keys]
        question = "\n\n".join([problem.text, "Merge these drafts into one answer:", *drafts])
        editor = session.agent("editor", (Message("user", question),))
        return (await session.call(root, "merge", editor, Agent.complete)).text
