"""Tools of AsyncThink's workers: functions, programs, search, and those of MCP servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orgthink.grammar.fork_calls import NAMES
from orgthink.organizations.prompts import prompt
from orgthink.organizations.rounds import Rounds
from orgthink.runtime.agent import Agent
from orgthink.runtime.session import Session
from orgthink.tools.faults import Faults
from orgthink.tools.tool import Desk, Tool
from orgthink.tools.toolbox import TOOLS, Suite, other_tool, resources, served, toolbox
from orgthink.util.errors import require_above_zero, require_at_least


@dataclass(frozen=True)
class WorkerTools:
    """What workers may call. A call is forked and joined: code has no place in the pool, and takes no decoding step."""

    tools: tuple[str, ...] = ()
    """By name: `python`, `search`, others of the suite, or by reference."""
    servers: tuple[str, ...] = ()
    """Commands or URLs of MCP servers whose tools are added."""
    suite: Suite = field(default_factory=Suite)
    """What they work with."""
    calls: int = 4
    """A turn's further calls are not made."""
    call_seconds: float = 120.0
    """Deadline of a call."""
    response_tokens: int = 4096
    """What comes back is cut after so many."""

    def __post_init__(self) -> None:
        require_at_least(1, self, "calls", "response_tokens")
        require_above_zero(self, "call_seconds")
        for name in (other_tool(tool).name for tool in self.tools if tool not in TOOLS):
            if name in NAMES:
                raise ValueError(f"a tool calls itself {name!r}, as the call of an organizer does: rename it")

    def __bool__(self) -> bool:
        return bool(self.tools or self.servers)

    async def opened(self) -> dict[str, Tool]:
        """The tools by name. Programs, search and servers are opened once in a process."""
        if not self:
            return {}
        found = toolbox(self.tools, (), *resources(self.suite, self.tools), brief=False)
        return found | await served(self.servers, taken=(*found, *NAMES))

    def rounds(self, agent: Agent, session: Session, tools: Mapping[str, Tool], style: str, forks: bool) -> Rounds:
        """Makes the calls of a worker, which may have calls of an organizer beside them."""
        desk = Desk(session, session.problem, lambda name, problem, share=1.0: prompt(style, name, problem), {})
        return Rounds(
            agent,
            tools,
            desk,
            self.calls,
            self.call_seconds,
            lambda text: agent.cut(text, self.response_tokens),
            Faults(),
            others=NAMES if forks else (),
        )
