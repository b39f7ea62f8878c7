"""One attempt of an organization at a problem: a session from start to end, and the episode it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from orgthink.engines.engine import EngineError
from orgthink.episode import CancelSource, Episode, Problem, Status, StopReason
from orgthink.runtime.agent import Result, Role, Watcher
from orgthink.runtime.budget import BudgetExhausted
from orgthink.runtime.deadline import within
from orgthink.runtime.session import Limits, Session


class Organization(Protocol):
    """Who does what: one async function over a session. A frozen dataclass whose fields are its settings."""

    name: str

    async def run(self, problem: Problem, session: Session) -> str | None:
        """Work on the problem and return the answer, or `None` without one."""
        ...


async def attempt(
    organization: Organization,
    problem: Problem,
    default: Role,
    *,
    roles: Mapping[str, Role] | None = None,
    limits: Limits | None = None,
    sample: int = 0,
    watch: Watcher | None = None,
) -> Episode:
    """Run the organization on the problem. Engine failures and limits end up in the episode; bugs are raised."""
    limits = limits or Limits()
    session = Session(problem, default, roles=roles, limits=limits, sample=sample, watch=watch)
    end = _End()
    try:
        # Children clean up within one grace period, the session waits two for them: three are enough for all.
        await within(limits.episode_seconds, 3 * limits.grace, _run(organization, session, end))
    except TimeoutError:
        end.stop, end.cancel = StopReason.DEADLINE, CancelSource.LIMIT
    return _episode(organization, session, end)


class _End:
    """How an episode ended, filled in on the way."""

    answer: str | None = None
    stop = StopReason.DONE
    cancel: CancelSource | None = None
    error: str | None = None


async def _run(organization: Organization, session: Session, end: _End) -> None:
    try:
        async with session.open():
            try:
                end.answer = await organization.run(session.problem, session)
            except EngineError as error:
                end.stop, end.error = StopReason.ERROR, str(error)
            except BudgetExhausted as error:
                end.stop, end.error = StopReason.BUDGET, f"budget exhausted: {error}"
            except asyncio.CancelledError:
                for agent in session.agents:
                    if agent.result is None:
                        agent.cancel = agent.cancel or CancelSource.LIMIT
                raise
    except BaseExceptionGroup as group:  # a bug in a forked task: raise it as itself
        raise group.exceptions[0] from group


def _episode(organization: Organization, session: Session, end: _End) -> Episode:
    root = session.agents[0]
    ok = Result(end.answer, Status.OK) if end.answer is not None else Result("", Status.NO_RETURN)
    root.ended(end.stop, ok)
    return Episode(
        id=f"{session.problem.id}|{organization.name}|{session.sample}",
        problem=session.problem,
        organization=organization.name,
        capacity=session.capacity,
        traces=tuple(agent.trace() for agent in session.agents),
        sample=session.sample,
        answer=end.answer,
        format_faults=tuple(session.faults),
        stop=end.stop if end.stop is not StopReason.DONE else root.stop or StopReason.DONE,
        cancel=end.cancel,
        error=end.error,
        seconds=session.clock(),
    )
