"""`--approve`: a person decides at the terminal about what models want done."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Literal

from orgthink.engines.person import Declined, Inbox, OpenQuestion
from orgthink.runtime import Allow, Approve, Deny, PendingCall

Approved = Literal["tools", "forks", "all"]
"""Calls that need an approval."""


def approver(approved: Approved, inbox: Inbox) -> Approve:
    """Asks about calls of that kind through an inbox. To decline is to deny."""

    async def approve(call: PendingCall) -> Allow | Deny:
        if approved not in ("all", f"{call.kind}s"):
            return Allow()
        try:
            async with aclosing(inbox.ask(_question(call))) as messages:
                async for message in messages:
                    if (decision := read_decision(message)) is not None:
                        return decision
        except Declined:
            pass
        return Deny()

    return approve


def read_decision(message: str) -> Allow | Deny | None:
    """The decision of an answer; `None` if it has none."""
    word, _, rest = message.strip().partition(" ")
    match word.lower():
        case "y" | "yes":
            return Allow()
        case "n" | "no":
            return Deny(rest.strip())
    return None


def _only_text(arguments: Mapping[str, Any]) -> str | None:
    """Name of the only argument, if its value is a text."""
    names = [name for name, value in arguments.items() if isinstance(value, str)]
    return names[0] if len(arguments) == len(names) == 1 else None


def _question(call: PendingCall) -> OpenQuestion:
    name = _only_text(call.arguments)
    what = json.dumps(dict(call.arguments), ensure_ascii=False) if name is None else call.arguments[name]
    return OpenQuestion(
        f"{call.parent} wants {call.kind} {call.name} ({call.agent}):",
        what,
        "y allows, n REASON denies",
    )
