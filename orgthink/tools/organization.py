"""An organization as a tool: it works on a subtask, and its answer comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from orgthink.runtime.agent import Agent, Result
from orgthink.runtime.organization import Organization, fork_organization
from orgthink.tools.schema import Parameters
from orgthink.tools.tool import Desk
from orgthink.util.errors import require_at_least


@cache
def subtask_parameters() -> Parameters:
    """Of a tool that works on a subtask."""

    def ask(subtask: str = "") -> None:
        """Ask.

        Args:
            subtask: What to do, in words that can be understood without the rest; the whole problem by default.
        """

    return Parameters.of(ask)


@dataclass(frozen=True, slots=True)
class OrganizationTool:
    """An organization as a tool. A call costs what its agents cost."""

    name: str
    """What it is called by."""
    organization: Organization
    """Which works."""
    cost: float = 0.0
    """Cost units of a call, beside those of its agents."""

    def __post_init__(self) -> None:
        require_at_least(0, self, "cost")

    @property
    def description(self) -> str:
        """What the organization does, in the first paragraph of its docstring."""
        return " ".join((self.organization.__doc__ or "").partition("\n\n")[0].split())

    @property
    def parameters(self) -> Parameters:
        return subtask_parameters()

    def agent(self, arguments: Mapping[str, Any], desk: Desk) -> Agent:
        return desk.session.code(self.name)

    async def work(self, agent: Agent, arguments: Mapping[str, Any], desk: Desk) -> Result | str | None:
        query, key = arguments.get("subtask") or desk.problem.text, self.organization.name
        root = fork_organization(desk.session, agent, key, self.organization, query)
        agent.so_far = lambda: root.so_far()
        return replace(await desk.session.join(agent, key), source=None)
