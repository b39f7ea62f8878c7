"""What comes back from an agent or a tool: the one place where the end of work becomes a status."""

from __future__ import annotations

from dataclasses import dataclass

from orgthink.record.episode import Status, StopReason
from orgthink.util.errors import ErrorKind


@dataclass(frozen=True, slots=True)
class Result:
    """What an agent or a tool hands to its parent."""

    text: str
    """What it returned; empty if it returned nothing."""
    status: Status = Status.OK
    """How it went."""
    source: str | None = None
    """Agent that returned it."""
    error: str | None = None
    """One line, if its engine or tool failed."""
    error_kind: ErrorKind | None = None
    """Which boundary that error crossed; `None` without one, and where a tool says only that it went wrong."""
    refused: str | None = None
    """One line for whoever wanted it, if an approver did not let it be done."""


_STATUS = {
    StopReason.LENGTH: Status.TRUNCATED,
    StopReason.BUDGET: Status.TRUNCATED,
    StopReason.DEADLINE: Status.TIMEOUT,
    StopReason.CANCELLED: Status.CANCELLED,
    StopReason.ERROR: Status.ERROR,
}
"""Of those who were stopped; what the others returned says how it went."""


def result_of(returned: Result | str | None, stop: StopReason) -> Result:
    """The result of work that returned a text, or `None` for nothing. Work that knows better returns a Result."""
    if isinstance(returned, Result):
        return returned
    status = _STATUS.get(stop, Status.NO_RETURN if returned is None else Status.OK)
    return Result(returned or "", status)
