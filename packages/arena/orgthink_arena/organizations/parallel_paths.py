"""Parallel paths within one text, decoded as their authors do (Parallel-R1, ThreadWeaver).

    text up to a block → paths at the same time, each goes on from that text → all of them enter the text → more text

It needs an engine that takes token ids, and no change of it: after a block its text is read again as any text.
Multiverse and NPR were trained with paths that do not read each other even then, so for them it is an approximation.
"""

from __future__ import annotations

from dataclasses import dataclass

from orgthink.organizations.prompts import prompt
from orgthink.organizations.request import boxed_answer
from orgthink.record.episode import Problem
from orgthink.runtime.agent import Agent
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.util.errors import pick, require_at_least
from orgthink_arena.transcripts import DIALECTS

MOST_PLANS = 16
"""Most plans of a block that get a path."""


@dataclass(frozen=True)
class ParallelPaths(Organization):
    """A model begins blocks of parallel paths within its text. Each path is an agent that goes on from this text."""

    format: str = "parallel-r1"
    """Format of the text: parallel-r1 or threadweaver; multiverse or npr as an approximation."""
    prompts: str = "paper"
    """Prompt style."""
    paths: int = 2
    """Paths of a block in a format without plans."""
    blocks: int = 4
    """Most blocks. The tag of a later one is text."""
    name: str = "parallel-paths"

    roles = ("thinker", "path")

    def __post_init__(self) -> None:
        require_at_least(1, self, "paths", "blocks")
        if not pick("format", self.format, DIALECTS).before:
            raise ValueError(f"{self.format} has no tag that begins a block: its transcripts can be read only")

    def identical_agents(self, capacity: int) -> dict[str, int]:
        """Paths of a block, which have the same prompt in a format without numbers."""
        return {"path": 1 if "{}" in DIALECTS[self.format].path[0] else self.paths}

    async def run(self, problem: Problem, session: Session) -> str | None:
        thinker = session.agent("thinker", prompt(self.prompts, "sequential", problem))
        for _ in range(self.blocks):
            text = await thinker.complete(DIALECTS[self.format].before)
            if DIALECTS[self.format].before not in text:
                break
            await self._block(thinker, text, session)
        await thinker.complete()
        if (answer := boxed_answer(thinker, problem)) is None:
            session.unanswered(thinker)
        return answer

    async def _block(self, thinker: Agent, text: str, session: Session) -> None:
        """Decode the paths of a block at the same time, then put them into the thinker's text."""
        dialect, forked = DIALECTS[self.format], list[str]()
        count = min(MOST_PLANS, text.count(dialect.plan)) if dialect.plan else self.paths
        with session.until_spent(thinker):
            for key in map(str, range(1, count + 1)):
                path = session.agent("path", (), inherits=thinker)
                path.inject("", around=(dialect.path[0].format(key), ""))
                session.fork(thinker, key, path, lambda path: path.complete(dialect.path[1]))
                forked.append(key)
        for key in forked:
            result = await session.join(thinker, key)
            around = dialect.path[0].format(key), dialect.path[1]
            thinker.inject(result.text.removesuffix(around[1]), result.source, around)
        thinker.inject("", around=(dialect.after, ""))
