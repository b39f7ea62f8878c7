"""An organization below another one: what a forked agent does may be the work of any organization.

That agent is the root of the organization, so one record holds both, and limits, measures and approvals go through all
levels.
"""

from __future__ import annotations

from orgthink.record.episode import Problem
from orgthink.runtime.agent import Agent, Work
from orgthink.runtime.approval import editable_text
from orgthink.runtime.attempt import Organization
from orgthink.runtime.session import Session


def fork_organization(
    session: Session,
    parent: Agent,
    key: str,
    organization: Organization,
    query: str,
    context: str = "",
    seconds: float | None = None,
) -> Agent:
    """Fork an agent in whose place an organization works on a sub-query, which an approver may edit before.

    `context` is what it is told beside the sub-query, `seconds` is its deadline. The agent is joined and ended as any
    other.
    """

    def works_on(query: str) -> Work:
        async def work(agent: Agent) -> str | None:
            problem = sub_problem(session.problem, query, context)
            return await organization.run(problem, session.nested(agent, problem))

        return work

    agent = session.stand_in(organization.name)
    editable = editable_text("query", query, lambda agent, query: works_on(query))
    session.fork(parent, key, agent, works_on(query), seconds=seconds, editable=editable)
    return agent


def sub_problem(problem: Problem, query: str, context: str) -> Problem:
    """A sub-query as a problem of its own, which no task grades."""
    return Problem(problem.id, "", f"{context}\n\n{query}" if context else query, instruction=context)


def levels_below(organization: object) -> int:
    """Levels of forks that an organization needs below an agent in its place: its `least_depth`, or none."""
    return getattr(organization, "least_depth", 0)
