"""Parallel thinking: independent traces and a vote (section 4 of AsyncThink). The stronger baseline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

from orgthink.episode import Problem, Status
from orgthink.grammar.asyncthink import DIALECT, Dialect
from orgthink.organizations.prompts import prompt
from orgthink.organizations.sequential import think
from orgthink.organizations.speech import caller
from orgthink.runtime.agent import Agent
from orgthink.runtime.session import Session
from orgthink.tasks import TASKS
from orgthink.tasks.task import Solution


@dataclass(frozen=True)
class Parallel:
    """As many thinkers as the pool holds; the most frequent answer, or the first n_s most frequent solutions."""

    prompts: str = "paper"
    """Prompt style."""
    dialect: Dialect = DIALECT
    """Spelling of the tags."""
    name: str = "parallel"

    roles: ClassVar[tuple[str, ...]] = ("thinker",)

    def alike(self, capacity: int) -> int:
        """How many are asked the same and vote."""
        return capacity

    async def run(self, problem: Problem, session: Session) -> str | None:
        controller = session.controller()

        async def work(thinker: Agent) -> str | None:
            return await think(thinker, session, self.dialect)

        keys = [str(i) for i in range(1, self.alike(session.capacity) + 1)]
        for key in keys:
            thinker = caller(session, "thinker", prompt(self.prompts, "sequential", problem))
            session.fork(controller, key, thinker, work)
        results = [await session.join(controller, key) for key in keys]
        return vote(problem, [result.text for result in results if result.status is Status.OK])


def vote(problem: Problem, answers: list[str]) -> str | None:
    """The n_s most frequent solutions of all answers; among equals the one that was offered first."""
    votes: Counter[Hashable] = Counter()
    texts: dict[Hashable, str] = {}
    for answer in answers:
        offered: dict[Hashable, str] = {}  # one vote for each from each answer
        for solution in _solutions(problem, answer):
            offered.setdefault(solution.identity, solution.text)
        votes.update(offered.keys())
        texts = offered | texts
    winners = [texts[identity] for identity, _ in votes.most_common(problem.required)]
    return "\n".join(winners) if winners else None


def _solutions(problem: Problem, answer: str) -> list[Solution]:
    """What an answer offers; all of it, if the problem is no task's."""
    task = TASKS.get(problem.task)
    return [Solution(answer, answer)] if task is None else task.solutions(problem, answer)
