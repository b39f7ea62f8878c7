"""The protocol of tools: functions and agents that a manager calls (section 3.1 of ParaManager, Eq. 1).

A call is a fork: the tool names the agent that does it, and the work of that agent. The result is a value and a status.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from orgthink.grammar.toolcall import CallStatus, Response
from orgthink.record.episode import Message, Problem, Status
from orgthink.runtime.agent import Agent, Result, Work
from orgthink.runtime.budget import BudgetExhausted
from orgthink.runtime.deadline import DeadlineMissed
from orgthink.runtime.session import Session
from orgthink.tools.schema import Parameters
from orgthink.util.errors import Failure, ToolError
from orgthink.util.terminal import error_text, excerpt

MOST_RETURNED = 200_000
"""Characters of a result; the middle of a longer text is left out."""

_log = logging.getLogger(__name__)


class Prompt(Protocol):
    """Makes prompts."""

    def __call__(self, template: str, problem: Problem, share: float = 1.0, /) -> tuple[Message, ...]:
        """The prompt of a template for a problem, with a share of the history if that is too long for a model."""
        ...


@dataclass(frozen=True, slots=True)
class Desk:
    """The parts of an episode that a call can use."""

    session: Session
    """The session of the episode."""
    problem: Problem
    """The problem of the episode."""
    prompt: Prompt
    """Makes the prompt of a template for a problem or subtask, with the history so far."""
    models: Mapping[str, str]
    """Names of models in the session, by the ids that the manager uses."""


class Tool(Protocol):
    """A tool."""

    @property
    def name(self) -> str:
        """Its name in calls."""
        ...

    @property
    def description(self) -> str:
        """What it does, for the manager."""
        ...

    @property
    def cost(self) -> float:
        """Cost units of a call."""
        ...

    @property
    def parameters(self) -> Parameters:
        """Its parameters."""
        ...

    def agent(self, arguments: Mapping[str, Any], desk: Desk) -> Agent:
        """The agent that does the call, not forked yet. The arguments have been checked."""
        ...

    async def work(self, agent: Agent, arguments: Mapping[str, Any], desk: Desk) -> Result | str | None:
        """Do the call. A text is a value; a Failure or `None` is a failed call."""
        ...


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A Python function as a tool, described by its name, docstring and type hints.

    An exception is logged and becomes a ToolError of the call: other calls go on.
    """

    function: Callable[..., Awaitable[Result | str | None]]
    """Called with the arguments by name."""
    cost: float = 0.0
    """Cost units of a call."""
    seconds: float = 0.0
    """Seconds that a call may take, in addition to those that every call may take."""
    note: str = ""
    """Ends its description."""

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def description(self) -> str:
        return " ".join([*(self.function.__doc__ or "").partition("\n\n")[0].split(), self.note]).strip()

    @property
    def parameters(self) -> Parameters:
        return Parameters.of(self.function)

    def agent(self, arguments: Mapping[str, Any], desk: Desk) -> Agent:
        return desk.session.code(self.name)

    async def work(self, agent: Agent, arguments: Mapping[str, Any], desk: Desk) -> Result | str | None:
        try:
            found = await self.function(**arguments)
            if not isinstance(found, Result | str | None):
                raise TypeError(f"it returned {type(found).__name__}, not a text")
        except (Failure, BudgetExhausted, DeadlineMissed):
            raise
        except Exception as error:
            _log.exception("tool %s failed", self.name)
            raise ToolError(f"{type(error).__name__}: {error_text(error)}") from error
        return found


def paid_work(tool: Tool, arguments: Mapping[str, Any], desk: Desk) -> Work:
    """The work of a call. It costs the tool's cost, spent at the end so that the agent can still decode."""

    async def work(agent: Agent) -> Result | str | None:
        try:
            return await tool.work(agent, arguments, desk)
        finally:
            agent.spend(tool.cost)

    return work


CALL_SECONDS = 120.0
"""Seconds that every call may take."""
SLOWEST = 10.0
"""Tokens a second of the slowest stream that a call waits for."""


def call_seconds(agent: Agent, tool: Tool | None = None) -> float | None:
    """Deadline of a call where no setting names one: `CALL_SECONDS`, the `seconds` that the tool's code may take, and
    the tokens of its agent at the rate `SLOWEST`.

    `None` for a tool that `forks` agents: its requests and calls end by themselves.
    """
    if getattr(tool, "forks", False):
        return None
    code = getattr(getattr(tool, "use", None), "tool", tool)  # the tool that an agent uses itself
    return CALL_SECONDS + getattr(code, "seconds", 0.0) + agent.longest_reply / SLOWEST


_STATUS = {Status.OK: CallStatus.OK, Status.TIMEOUT: CallStatus.TIMEOUT}
"""Any other status is an error of the execution."""


def status_of(result: Result) -> CallStatus:
    """σ of a call that was made."""
    return _STATUS.get(result.status, CallStatus.EXEC_ERR)


_ERROR_CHARACTERS = 240
"""Most characters of an error."""


def response_of(name: str, result: Result) -> Response:
    """The response to a call: its result, or its error."""
    status, text = status_of(result), result.text
    if not text and status is not CallStatus.OK:
        text = excerpt(result.refused or result.error or result.status, _ERROR_CHARACTERS)
    return Response(name, status, text.strip())
