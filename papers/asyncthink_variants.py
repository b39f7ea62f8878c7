"""What the experiment on SmolLM2 compares AsyncThink with: plug-ins that its commands name by reference, such as
`rollout.organization.organization=papers.asyncthink_variants:Barrier`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orgthink.grammar.actions import Answer, Fork, Join, Return
from orgthink.grammar.asyncthink import DIALECT, organizer_scanner, worker_scanner
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.prompts import prompt
from orgthink.record.episode import Problem
from orgthink.runtime.agent import Agent, Result
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.training.coldstart.countdown import ScanTeacher
from orgthink.training.coldstart.teachers import program_of
from orgthink.training.recipes.any_model import ASYNCTHINK
from papers.variants import imitation


class _WaitingForAll:
    """A session whose first Join waits for all forks that are under way; the others are then there at once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._forked: list[str] = []
        self._returned: dict[str, Result] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def fork(self, parent: Agent, key: str, *given: Any, **more: Any) -> None:
        self._session.fork(parent, key, *given, **more)
        self._forked.append(key)

    async def join(self, parent: Agent, key: str) -> Result:
        for each in self._forked:
            self._returned[each] = await self._session.join(parent, each)
        self._forked.clear()
        return self._returned.pop(key)


@dataclass(frozen=True)
class Barrier(AsyncThink):
    """AsyncThink whose organizer waits at its first Join for all of its workers, as threads that are joined together.
    The record, and so the critical path, has these joins there."""

    name: str = "barrier"

    async def run(self, problem: Problem, session: Session) -> str | None:
        return await AsyncThink.run(self, problem, _WaitingForAll(session))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Constant(Organization):
    """A constant policy for countdown: the parts are forked to so many workers, or to none, whatever the problem is.

    The beginning of the organizer's text, up to the last Fork, is given and takes no decoding steps. The model writes
    the rest, in which a further Fork has no effect.
    """

    prompts: str = "paper"
    """Prompt style."""
    workers: int = 3
    """Workers that are forked; 0: an organizer that never forks."""
    name: str = "constant"

    roles = ("organizer", "worker")

    async def run(self, problem: Problem, session: Session) -> str | None:
        capacity = session.capacity
        organizer = session.agent("organizer", prompt(self.prompts, "organizer", problem, capacity=capacity))
        firsts, how = [str(number) for number in sorted(problem.data["numbers"])[1:]], teacher(problem.task)
        text = f"{(how.shared if self.workers else how.openings)[0]} Parts: {how.comma.join(firsts)}."
        left = set[str]()
        for i in range(min(self.workers, len(firsts))):
            key, query = str(i + 1), _query(problem, firsts[i :: self.workers])
            values = {"capacity": capacity, "query": query, "context": problem.instruction}
            child = session.agent("worker", prompt(self.prompts, "worker", problem, **values))
            session.fork(organizer, key, child, _returned)
            text += f"\n{DIALECT.render(Fork(key, query))}"
            left.add(key)
        organizer.inject(text)
        async for action in organizer.act(organizer_scanner()):
            match action:
                case Answer(text):
                    return text.strip() or None
                case Join(key) if key in left:
                    left.remove(key)
                    result = await session.join(organizer, key)
                    organizer.inject(result.text, result.source, DIALECT.around(key, organizer.last_sampled))
        session.unanswered(organizer)
        return None


def teacher(task: str) -> ScanTeacher:
    """The teacher of a countdown."""
    return program_of(task).write.__self__  # type: ignore[attr-defined]  # a method


def _query(problem: Problem, firsts: list[str]) -> str:
    how, data = teacher(problem.task), problem.data
    values = {"numbers": how.comma.join(map(str, data["numbers"])), "target": data["target"]}
    return how.queries[0].format(firsts=how.conjunction.join(firsts), wanted=problem.required, **values)


async def _returned(worker: Agent) -> str | None:
    async for action in worker.act(worker_scanner()):
        if isinstance(action, Return):
            return action.text.strip()
    return None


REJECTION_SAMPLING = imitation(ASYNCTHINK)
"""Imitates the attempts of `main` that are all right."""
