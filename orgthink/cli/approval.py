"""`--approve`: a person decides at the terminal about what models want done."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Literal

from orgthink.engines.person import Declined, Inbox, OpenQuestion
from orgthink.grammar.strict_json import parse
from orgthink.runtime import Allow, Approve, Deny, Edit, PendingCall

Approved = Literal["tools", "forks", "all"]
"""Calls that need an approval."""


def approver(approved: Approved, inbox: Inbox) -> Approve:
    """Asks about calls of that kind through an inbox. Whoever declines denies."""

    async def approve(call: PendingCall) -> Allow | Deny | Edit:
        if approved not in ("all", f"{call.kind}s"):
            return Allow()
        try:
            async with aclosing(inbox.ask(_question(call))) as messages:
                async for message in messages:
                    if (decision := read_decision(message, call.arguments)) is not None:
                        return decision
        except Declined:
            pass
        return Deny()

    return approve


def read_decision(message: str, arguments: Mapping[str, Any]) -> Allow | Deny | Edit | None:
    """What an answer decides; `None` if it is none."""
    word, _, rest = message.strip().partition(" ")
    match word.lower():
        case "y" | "yes":
            return Allow()
        case "n" | "no":
            return Deny(rest.strip())
        case "e" | "edit" if rest.strip():
            edited = _edited(rest.strip(), arguments)
            return None if edited is None else Edit(edited)
    return None


def _edited(text: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """New arguments: a JSON object, or simply the text of an only argument that is one."""
    if (name := _only_text(arguments)) is not None:
        return {name: text}
    try:
        found = parse(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _only_text(arguments: Mapping[str, Any]) -> str | None:
    """Name of the only argument, if its value is a text."""
    names = [name for name, value in arguments.items() if isinstance(value, str)]
    return names[0] if len(arguments) == len(names) == 1 else None


def _question(call: PendingCall) -> OpenQuestion:
    name = _only_text(call.arguments)
    what = json.dumps(dict(call.arguments), ensure_ascii=False) if name is None else call.arguments[name]
    new = "JSON" if name is None else "TEXT"
    return OpenQuestion(
        f"{call.parent} wants {call.kind} {call.name} ({call.agent}):",
        what,
        f"y allows, n REASON denies, e {new} edits",
    )
