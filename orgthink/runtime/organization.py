"""The base class of organizations, and organizations that work in the place of a forked agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, ClassVar, Self

from orgthink.record.episode import Episode, Problem
from orgthink.runtime.agent import Agent
from orgthink.runtime.session import Session
from orgthink.util.errors import UserError, pick

Measure = Callable[[Episode], float | None]
"""A pure function of an episode: a number, or `None` where the episode has none."""


class Organization:
    """Who works on a problem, and how: one async function over a session.

    Only `run` is required. The fields of a dataclass are settings.
    """

    __pydantic_config__: ClassVar = {"arbitrary_types_allowed": True}

    def __new__(cls, /, *args: Any, **settings: Any) -> Self:
        """UserError, with the nearest name, for a setting that the class does not have."""
        if cls.__init__ is object.__init__ and (args or settings):  # it would take anything
            raise UserError(f"{cls.__name__} has no settings")
        _, *known = signature(cls.__init__).parameters.values()
        for name in () if any(one.kind is one.VAR_KEYWORD for one in known) else settings:
            pick(f"setting of {cls.__name__}", name, {one.name: None for one in known})
        return super().__new__(cls)

    @property
    def name(self) -> str:
        """Name in tables and episodes. A subclass may make it a field."""
        return vars(self).get("name", type(self).__name__)

    @property
    def roles(self) -> tuple[str, ...]:
        """Roles of the agents with a model: each may have its own engine and sampling."""
        return ()

    @property
    def measures(self) -> Mapping[str, Measure]:
        """Measures of its own by name, for the table, summary.json and the metrics of training."""
        return {}

    @property
    def max_parallel_calls(self) -> int:
        """Most agents that the root calls at once and waits for."""
        return 0

    @property
    def least_capacity(self) -> int:
        """Capacity below which no agent could be forked."""
        return 1

    @property
    def least_depth(self) -> int:
        """Levels of forks that it needs below its root."""
        return 0

    def identical_agents(self, capacity: int) -> Mapping[str, int]:
        """Number of agents with the same prompt whose answers are compared, by role."""
        return {}

    async def run(self, problem: Problem, session: Session) -> str | None:
        """Work on the problem and return the answer, or `None` without one."""
        raise NotImplementedError(f"{type(self).__name__} has no run")


def fork_organization(
    session: Session,
    parent: Agent,
    key: str,
    organization: Organization,
    query: str,
    context: str = "",
    seconds: float | None = None,
    price: float | None = None,
) -> Agent:
    """Fork an agent in whose place an organization works on a sub-query.

    `context` precedes the sub-query, `seconds` is the deadline, and `price` is paid in addition to what agents cost.
    The agent is joined and ended like any other. It is the root of the organization, so one record holds both, and
    limits, measures and approvals apply at all levels.
    """

    async def work(agent: Agent) -> str | None:
        if price is not None:
            agent.pay(price)
        text = f"{context}\n\n{query}" if context else query
        problem = Problem(session.problem.id, "", text, instruction=context)  # of its own, without a grader
        return await organization.run(problem, session.nested(agent, problem))

    agent = session.code(organization.name)
    agent.organizes = True
    session.fork(parent, key, agent, work, seconds=seconds, arguments={"query": query})
    return agent
