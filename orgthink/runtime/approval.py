"""Approval: every fork of an episode may be allowed, denied or edited before it begins, by one function that waits.

It is called in the task of the fork. So the parent decodes on, and siblings go on, while somebody makes up their mind.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from orgthink.record.episode import Approval, CancelSource, Decision, Message, Status, StopReason
from orgthink.runtime.agent import Agent, Result, Work
from orgthink.runtime.budget import BudgetExhausted, Limits
from orgthink.runtime.deadline import DeadlineMissed, within
from orgthink.util.errors import Failure, ToolError

Kind = Literal["fork", "tool"]
"""Of a call: an agent with a model or a person does it, or an organization, or else code."""


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A fork that is about to begin."""

    kind: Kind
    """`fork` for an agent with a model or a person, or an organization of them; `tool` for code."""
    parent: str
    """Agent that wants it."""
    agent: str
    """Agent that is to do it."""
    name: str
    """Role of that agent; of a tool its name."""
    arguments: Mapping[str, Any]
    """What it is to do, as JSON values by name: the sub-query, a tool's arguments, or else the agent's prompt."""


@dataclass(frozen=True, slots=True)
class Allow:
    """Let the call be made."""


@dataclass(frozen=True, slots=True)
class Deny:
    """Forbid the call. Whoever wanted it gets an empty result and the reason."""

    reason: str = ""
    """One line for the model that wanted it."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Let the call be made with other arguments."""

    arguments: Mapping[str, Any]
    """New values; arguments that are not named stay."""
    reason: str = ""
    """One line for the record."""


Approve = Callable[[PendingCall], Awaitable[Allow | Deny | Edit]]
"""Decides about a call. An exception is a bug, which ends the episode."""


class Editable(NamedTuple):
    """What a fork is to do, and how to change that before it begins."""

    arguments: Mapping[str, Any]
    """As an approver sees it: JSON values by name."""
    amend: Callable[[Agent, Mapping[str, Any]], Awaitable[Work]]
    """Gives an agent, which has not begun, other arguments, and returns its work with them. ValueError if these do not
    fit."""


def editable_text(name: str, text: str, amend: Callable[[Agent, str], Work]) -> Editable:
    """What a fork is to do, where that is a text."""

    async def amended(agent: Agent, arguments: Mapping[str, Any]) -> Work:
        value = arguments[name]
        if not isinstance(value, str):
            raise ValueError(f"{name} is a text, not {type(value).__name__}")
        return amend(agent, value)

    return Editable({name: text}, amended)


def editable_prompt(agent: Agent, work: Work) -> Editable:
    """The last turn of an agent's prompt, for forks of which no more is known. Code has none."""
    if not agent.messages:
        return Editable({}, _nothing_to_edit)
    *before, last = agent.messages

    def amend(agent: Agent, text: str) -> Work:
        agent.reprompt((*before, Message(last.role, text)), edited=True)
        return work

    return editable_text("prompt", last.content, amend)


async def _nothing_to_edit(agent: Agent, arguments: Mapping[str, Any]) -> Work:
    raise ValueError("it has no arguments")


class Approver:
    """Asks about the forks of one episode, and records what was decided."""

    def __init__(self, approve: Approve, limits: Limits, clock: Callable[[], float]) -> None:
        self._approve, self._limits, self._clock = approve, limits, clock

    async def work(self, child: Agent, work: Work, editable: Editable | None) -> Work | None:
        """The work of a fork as it may be done; `None` if it may not: then the child has ended."""
        editable = editable or editable_prompt(child, work)
        kind: Kind = "tool" if child.is_code and not child.organizes else "fork"
        call = PendingCall(kind, child.parent or "", child.id, child.role, dict(editable.arguments))
        child.approval = Approval(Decision.UNANSWERED, dict(editable.arguments), start=self._clock())
        try:
            ruling = await self._ruling(call)
        finally:
            child.approval = replace(child.approval, end=self._clock())
        match ruling:
            case None:
                child.cancel = CancelSource.LIMIT
                child.ended(StopReason.DEADLINE, Result("", Status.TIMEOUT, refused="nobody approved it in time"))
            case Allow():
                child.approval = replace(child.approval, decision=Decision.ALLOWED)
                return work
            case Deny(reason):
                child.approval = replace(child.approval, decision=Decision.DENIED, reason=reason)
                child.cancel = CancelSource.OPERATOR
                line = " ".join(f"denied: {reason}".split()).removesuffix(":")
                child.ended(StopReason.CANCELLED, Result("", Status.DENIED, refused=line))
            case Edit(arguments, reason):
                edited = {**editable.arguments, **arguments}
                child.approval = replace(child.approval, decision=Decision.EDITED, edited=edited, reason=reason)
                return await self._amended(child, editable, edited)
        return None

    async def _ruling(self, call: PendingCall) -> Allow | Deny | Edit | None:
        """What is decided; `None` if nobody did in time."""

        async def asking() -> Allow | Deny | Edit:
            try:
                ruling = await self._approve(call)
            except (Failure, BudgetExhausted, DeadlineMissed) as error:  # none of these is the fork's own
                raise RuntimeError(f"an approver failed: {error}") from error
            if not isinstance(ruling, Allow | Deny | Edit):
                raise TypeError(f"an approver returned {type(ruling).__name__}: it must return Allow, Deny or Edit")
            return ruling

        try:
            return await within(self._limits.answer_seconds, self._limits.grace, asking())
        except DeadlineMissed:
            return None

    async def _amended(self, child: Agent, editable: Editable, arguments: Mapping[str, Any]) -> Work | None:
        try:
            return await editable.amend(child, arguments)
        except ValueError as error:
            child.failed(ToolError(f"the edited call cannot be made: {error}"))
            child.ended(StopReason.ERROR)
            return None
