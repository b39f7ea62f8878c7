"""Approval: a function allows or denies every fork of an episode before it begins.

It is called in the task of the fork. So the parent and its other forks go on while it decides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from orgthink.record.episode import CancelSource, Status, StopReason
from orgthink.runtime.agent import Agent, Result
from orgthink.runtime.budget import BudgetExhausted, Limits
from orgthink.runtime.deadline import DeadlineMissed, within
from orgthink.util.errors import Failure, explained


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A fork that is about to begin."""

    kind: Literal["fork", "tool"]
    """`fork` for an agent with a model, or an organization; `tool` for code."""
    parent: str
    """Agent that forks."""
    agent: str
    """Agent that is forked."""
    name: str
    """Role of the forked agent, or name of the tool."""
    arguments: Mapping[str, Any]
    """What it would do, as JSON values by name: the sub-query, a tool's arguments, or the agent's prompt."""


Approve = Callable[[PendingCall], Awaitable[bool | str]]
"""Decides about a call: `True` allows it, `False` or a reason denies it. The model that made the call reads the reason.
An exception is a bug, which ends the episode."""


async def allowed(approve: Approve, child: Agent, arguments: Mapping[str, Any] | None, limits: Limits) -> bool:
    """Whether a fork may begin; otherwise the child has ended."""
    if arguments is None:
        arguments = {"prompt": child.messages[-1].content} if child.messages else {}
    kind: Literal["fork", "tool"] = "tool" if child.is_code and not child.organizes else "fork"
    call = PendingCall(kind, child.parent or "", child.id, child.role, arguments)

    async def asking() -> bool | str:
        # An error of the approver is no failure of the fork.
        with explained("an approver failed", Failure, BudgetExhausted, DeadlineMissed, by=RuntimeError):
            ruling = await approve(call)
        if not isinstance(ruling, bool | str):
            raise TypeError(f"an approver returned {type(ruling).__name__}: it must return True, False or a reason")
        return ruling

    try:
        ruling = await within(limits.answer_seconds, limits.grace, asking())
    except DeadlineMissed:
        child.cancel = CancelSource.LIMIT
        child.ended(StopReason.DEADLINE, Result("", Status.TIMEOUT, refused="not approved in time"))
        return False
    if ruling is not True:
        child.cancel = CancelSource.OPERATOR
        child.error = " ".join(f"denied: {ruling or ''}".split()).removesuffix(":")
        child.ended(StopReason.CANCELLED, Result("", Status.DENIED, refused=child.error))
    return ruling is True
