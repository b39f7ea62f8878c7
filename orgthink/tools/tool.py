"""What a manager can call: functions and agents alike, behind one protocol (section 3.1 of ParaManager, Eq. 1).

A call is a fork: the tool says which agent does it, code or one with a model, and what that agent does. What comes
back is a value and a status.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from orgthink.grammar.toolcall import CallStatus, Response
from orgthink.record.episode import Message, Problem, Status
from orgthink.runtime.agent import Agent, Result, Work
from orgthink.runtime.budget import BudgetExhausted
from orgthink.runtime.deadline import DeadlineMissed
from orgthink.runtime.session import Session
from orgthink.tools.schema import Parameters
from orgthink.util.errors import Failure, ToolError, require_at_least
from orgthink.util.terminal import error_text, excerpt

MOST_RETURNED = 200_000
"""Characters of what others send as the result of a call; the middle of a longer text is left out."""

_log = logging.getLogger(__name__)


class Prompt(Protocol):
    """Makes prompts."""

    def __call__(self, template: str, problem: Problem, share: float = 1.0, /) -> tuple[Message, ...]:
        """The prompt of a template for a problem, with a share of the history if that is too long for a model."""
        ...


@dataclass(frozen=True, slots=True)
class Desk:
    """What a call may know of the episode it is made in."""

    session: Session
    """Which runs it."""
    problem: Problem
    """What the episode is about."""
    prompt: Prompt
    """The prompt of a template for a problem or subtask; it knows what has happened so far."""
    models: Mapping[str, str]
    """Names under which the session knows the models, by the ids that the manager calls them by."""


class Tool(Protocol):
    """Something to call."""

    @property
    def name(self) -> str:
        """What it is called by."""
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
        """What it takes."""
        ...

    def agent(self, arguments: Mapping[str, Any], desk: Desk) -> Agent:
        """Who does the call; not forked yet. The arguments have been checked."""
        ...

    async def work(self, agent: Agent, arguments: Mapping[str, Any], desk: Desk) -> Result | str | None:
        """Do it. A text is a value; a Failure, or nothing, is a failed call."""
        ...


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A Python function as a tool: its name, its docstring, and its type hints say everything.

    Whatever it raises is a ToolError of its call, and logged: a slip in one function ends nobody else's work.
    """

    function: Callable[..., Awaitable[Result | str | None]]
    """Called with the arguments by name."""
    cost: float = 0.0
    """Cost units of a call."""

    def __post_init__(self) -> None:
        require_at_least(0, self, "cost")

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def description(self) -> str:
        return " ".join((self.function.__doc__ or "").partition("\n\n")[0].split())

    @property
    def parameters(self) -> Parameters:
        return Parameters.of(self.function)

    def agent(self, arguments: Mapping[str, Any], desk: Desk) -> Agent:
        return desk.session.code(self.name)

    async def work(self, agent: Agent, arguments: Mapping[str, Any], desk: Desk) -> Result | str | None:
        try:
            found = await self.function(**arguments)
            text = found.text if isinstance(found, Result) else found
            if not isinstance(text, str | None):
                raise TypeError(f"it returned {type(text).__name__}, not a text")
        except (Failure, BudgetExhausted, DeadlineMissed, asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as error:  # a library in Rust that panics raises no Exception
            if isinstance(error, GeneratorExit) and not _is_inner(error):
                raise
            if isinstance(error, BaseExceptionGroup) and error.subgroup(KeyboardInterrupt):
                raise KeyboardInterrupt from error
            _log.exception("tool %s failed", self.name)
            raise ToolError(f"{type(error).__name__}: {error_text(error)}") from error
        if isinstance(found, Result):
            return replace(found, text=_plain(found.text))
        return None if found is None else _plain(found)


def _plain(text: str) -> str:
    """A text, also where it is of a class of its own, whose methods may do anything."""
    return str.__str__(text)


def _is_inner(error: BaseException) -> bool:
    """Whether what was called raised it. Python itself raises GeneratorExit here, to close a call that never ended."""
    return error.__traceback__ is not None and error.__traceback__.tb_next is not None


def paid_work(tool: Tool, arguments: Mapping[str, Any], desk: Desk) -> Work:
    """The work of a call, which costs what the tool does: whoever spent its last unit before could not decode."""

    async def work(agent: Agent) -> Result | str | None:
        try:
            return await tool.work(agent, arguments, desk)
        finally:
            agent.spend(tool.cost)

    return work


_STATUS = {Status.OK: CallStatus.OK, Status.TIMEOUT: CallStatus.TIMEOUT}
"""Whatever else happens to a call that was made is an error of its execution."""


def status_of(result: Result) -> CallStatus:
    """σ of a call that was made."""
    return _STATUS.get(result.status, CallStatus.EXEC_ERR)


_ERROR_CHARACTERS = 240
"""Characters of an error that are shown."""


def response_of(name: str, result: Result) -> Response:
    """The response to a call that was made: what it returned, or else why there is nothing."""
    status, text = status_of(result), result.text
    if not text and status is not CallStatus.OK:
        text = excerpt(result.refused or result.error or result.status, _ERROR_CHARACTERS)
    return Response(name, status, text.strip())
