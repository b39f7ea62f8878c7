"""Agents that work side by side on one problem and vote."""

from __future__ import annotations

from collections.abc import Callable

from orgthink.record.episode import Problem, Status
from orgthink.runtime.agent import Agent, Work
from orgthink.runtime.session import Session
from orgthink.tasks.vote import vote


async def voted(
    session: Session, parent: Agent, problem: Problem, count: int, new: Callable[[], Agent], work: Work
) -> str | None:
    """The vote of so many new agents below a parent, or of those that the budget allows. A deadline finds the vote of
    the answers so far."""
    voters: list[Agent] = []

    def so_far() -> str | None:
        results = [voter.result for voter in voters if voter.result is not None]
        return vote(problem, [result.text for result in results if result.status is Status.OK])

    owner = session if parent is session.root else parent
    owner.so_far = so_far
    with session.until_spent(parent):
        for i in range(1, count + 1):
            voter = new()
            session.fork(parent, str(i), voter, work)
            voters.append(voter)
    for i in range(1, len(voters) + 1):
        await session.join(parent, str(i))
    return so_far()
