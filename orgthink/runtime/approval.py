"""Approval: a function allows or denies every fork of an episode before it begins.

It is called in the task of the fork. So the parent and its other forks go on while it decides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from orgthink.record.episode import Approval, CancelSource, Decision, Status, StopReason
from orgthink.runtime.agent import Agent, Result
from orgthink.runtime.budget import BudgetExhausted, Limits
from orgthink.runtime.deadline import DeadlineMissed, within
from orgthink.util.errors import Failure

Kind = Literal["fork", "tool"]
"""`fork` for an agent with a model or a person, or an organization; `tool` for code."""


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A fork that is about to begin."""

    kind: Kind
    """Whether an agent, an organization or code would do it."""
    parent: str
    """Agent that forks."""
    agent: str
    """Agent that is forked."""
    name: str
    """Role of the forked agent, or name of the tool."""
    arguments: Mapping[str, Any]
    """What it would do, as JSON values by name: the sub-query, a tool's arguments, or the agent's prompt."""


@dataclass(frozen=True, slots=True)
class Allow:
    """Let the call be made."""


@dataclass(frozen=True, slots=True)
class Deny:
    """Forbid the call. Its parent gets an empty result and the reason."""

    reason: str = ""
    """One line for the model that made the call."""


Approve = Callable[[PendingCall], Awaitable[Allow | Deny]]
"""Decides about a call. An exception is a bug, which ends the episode."""


class Approver:
    """Asks about the forks of one episode, and records the decisions."""

    def __init__(self, approve: Approve, limits: Limits, clock: Callable[[], float]) -> None:
        self._approve, self._limits, self._clock = approve, limits, clock

    async def allows(self, child: Agent, arguments: Mapping[str, Any] | None) -> bool:
        """Whether a fork may begin; otherwise the child has ended."""
        if arguments is None:
            arguments = {"prompt": child.messages[-1].content} if child.messages else {}
        kind: Kind = "tool" if child.is_code and not child.organizes else "fork"
        call = PendingCall(kind, child.parent or "", child.id, child.role, arguments)
        child.approval = Approval(Decision.UNANSWERED, dict(arguments), start=self._clock())
        try:
            ruling = await self._ruling(call)
        finally:
            child.approval = replace(child.approval, end=self._clock())
        match ruling:
            case None:
                child.cancel = CancelSource.LIMIT
                child.ended(StopReason.DEADLINE, Result("", Status.TIMEOUT, refused="not approved in time"))
            case Allow():
                child.approval = replace(child.approval, decision=Decision.ALLOWED)
            case Deny(reason):
                child.approval = replace(child.approval, decision=Decision.DENIED, reason=reason)
                child.cancel = CancelSource.OPERATOR
                line = " ".join(f"denied: {reason}".split()).removesuffix(":")
                child.ended(StopReason.CANCELLED, Result("", Status.DENIED, refused=line))
        return isinstance(ruling, Allow)

    async def _ruling(self, call: PendingCall) -> Allow | Deny | None:
        """The decision; `None` after the deadline."""

        async def asking() -> Allow | Deny:
            try:
                ruling = await self._approve(call)
            except (Failure, BudgetExhausted, DeadlineMissed) as error:  # not a failure of the fork
                raise RuntimeError(f"an approver failed: {error}") from error
            if not isinstance(ruling, Allow | Deny):
                raise TypeError(f"an approver returned {type(ruling).__name__}: it must return Allow or Deny")
            return ruling

        try:
            return await within(self._limits.answer_seconds, self._limits.grace, asking())
        except DeadlineMissed:
            return None
