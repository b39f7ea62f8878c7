"""AsyncThink (section 2): an organizer forks sub-queries to workers and joins their results as it thinks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from orgthink.episode import FormatError, Problem, StopReason
from orgthink.grammar.actions import Action, Answer, Fork, Join, Malformed, Return
from orgthink.grammar.asyncthink import DIALECT, Dialect, Keys, organizer_scanner, worker_scanner
from orgthink.organizations.prompts import prompt
from orgthink.runtime.agent import Agent
from orgthink.runtime.session import Session


@dataclass(frozen=True)
class AsyncThink:
    """The organizer decodes on after a Fork, and pauses at a Join only until that one worker is back."""

    prompts: str = "paper"
    """Prompt style."""
    tolerant: bool = False
    """After a format error go on with a notice, for untrained models; else the episode ends, as in training."""
    overflow: Literal["error", "queue"] = "error"
    """A Fork beyond c - 1 workers: a format error, or it waits for a place."""
    dialect: Dialect = DIALECT
    """Spelling of the tags."""
    name: str = "asyncthink"

    roles = ("organizer", "worker")

    async def run(self, problem: Problem, session: Session) -> str | None:
        organizer = session.agent("organizer", self._prompt("organizer", problem, session))
        return await self._organize(organizer, problem, session)

    async def _organize(self, organizer: Agent, problem: Problem, session: Session) -> str | None:
        """Act on what an organizer says until it answers or, forked itself, returns."""
        forked = organizer.parent is not None
        scanner = worker_scanner(self.dialect, forks=True) if forked else organizer_scanner(self.dialect)
        keys = Keys(session.capacity, queue=self.overflow == "queue")
        async for action in organizer.act(scanner):
            fault = keys.check(action)
            if fault is not None:
                session.fault(organizer, fault, self._detail(action))
                if not self.tolerant:
                    organizer.stop = StopReason.FORMAT
                    return None
                await self._notify(organizer, action, fault)
                continue
            match action:
                case Fork(key, query):
                    worker = session.agent("worker", self._prompt("worker", problem, session, query.strip()))
                    session.fork(organizer, key, worker, lambda child: self._work(child, problem, session))
                case Join(key):
                    result = await session.join(organizer, key)
                    organizer.inject(self.dialect.injection(key, result.text), source=result.source)
                case Answer(text) | Return(text):
                    return text.strip()
        if not forked:
            session.unanswered(organizer)
        return None

    async def _work(self, worker: Agent, problem: Problem, session: Session) -> str | None:
        """What a worker returns. One that may fork is an organizer that ends with a Return."""
        if worker.account.depth > 0:
            return await self._organize(worker, problem, session)
        async for action in worker.act(worker_scanner(self.dialect)):
            if isinstance(action, Return):
                return action.text.strip()
        return None

    async def _notify(self, organizer: Agent, action: Action, fault: FormatError) -> None:
        """Tell a tolerated organizer in one line that what it said was not done."""
        notice = f"(not done: {fault.replace('_', ' ').lower()})"
        if isinstance(action, Join):
            organizer.inject(self.dialect.injection(action.key, notice))
        else:
            await organizer.interrupt(f" {notice} ")

    def _prompt(self, role: str, problem: Problem, session: Session, query: str = ""):
        return prompt(self.prompts, role, problem, capacity=session.capacity, query=query)

    def _detail(self, action: Action) -> str:
        match action:
            case Fork(key) | Join(key):
                return key
            case Malformed(text):
                return text[:80]
            case _:
                return ""
