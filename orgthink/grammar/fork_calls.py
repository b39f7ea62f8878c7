"""Fork and join as calls of any chat model: an organizer's calls ↔ the commands of AsyncThink.

    fork {"task": sub-query} → id        join {"id": id} → returned text
    cancel {"id": id}                    status {} → which sub-queries are done
    tell {"id": id, "task": sub-query}, where workers are persistent

Ids are numbers from 1 on. Unlike in the tags it is the runtime that gives them, so no key is forked twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from orgthink.grammar.actions import Cancel, Command, Fork, Join, Poll, Tell
from orgthink.grammar.strict_json import dump, kind
from orgthink.grammar.toolcall import BadCall, ToolCall

_ID = re.compile(r"[0-9]{1,9}")


def _described(name: str, description: str, **parameters: dict[str, str]) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": parameters,
        "required": list(parameters),
        "additionalProperties": False,
    }
    return {"name": name, "description": description, "parameters": schema}


_WHICH = {"type": "integer", "description": "What fork returned."}
_TASK = {"type": "string", "description": "The subtask, with everything that the worker must know."}

FORK_TOOLS = (
    _described("fork", "Starts a worker on a subtask and returns its id at once. You go on meanwhile.", task=_TASK),
    _described("join", "Waits until a worker is done and returns its result. Each id is joined once.", id=_WHICH),
    _described("cancel", "Ends a worker whose result you do not need any more.", id=_WHICH),
    _described("status", "Tells which workers are done, without waiting for any."),
)
"""The calls, as prompts and servers describe them."""

_AGAIN = (
    _described("join", "Waits until a worker is done and returns its result. After a tell, join it again.", id=_WHICH),
    _described("tell", "Gives a joined worker, which still knows its work, a next subtask.", id=_WHICH, task=_TASK),
)
PERSISTENT_TOOLS = (FORK_TOOLS[0], _AGAIN[0], *FORK_TOOLS[2:], _AGAIN[1])
"""The same where workers are persistent."""

NAMES = tuple(tool["name"] for tool in PERSISTENT_TOOLS)
"""Names of all these calls: no other tool has them."""


def fork_tools(*, persistent: bool) -> tuple[dict[str, Any], ...]:
    return PERSISTENT_TOOLS if persistent else FORK_TOOLS


def read_command(call: ToolCall | BadCall, key: str, *, persistent: bool = False) -> Command:
    """The command of a call; a Fork gets the key. ValueError, with the reason, for an invalid call."""
    if isinstance(call, BadCall):
        raise ValueError(call.problem)
    _require(call, fork_tools(persistent=persistent))
    match call.name:
        case "fork" | "tell":
            task = call.arguments["task"]
            if not isinstance(task, str):
                raise ValueError(f'"task" is the text of the subtask, not {kind(task)}')
            return Fork(key, task) if call.name == "fork" else Tell(_id(call.arguments["id"]), task)
        case "join":
            return Join(_id(call.arguments["id"]))
        case "cancel":
            return Cancel(_id(call.arguments["id"]))
        case _:
            return Poll()


def _require(call: ToolCall, tools: Iterable[dict[str, Any]]) -> None:
    """ValueError for a call of another name, or with other arguments."""
    known = {tool["name"]: tuple(tool["parameters"]["properties"]) for tool in tools}
    if call.name not in known:
        raise ValueError(f"there is no tool {call.name[:64]!r}: it is one of {', '.join(known)}")
    expected = known[call.name]
    if set(call.arguments) != set(expected):
        form = "{" + ", ".join(f'"{name}": …' for name in expected) + "}"
        raise ValueError(f"the arguments of {call.name} are {form}")


def _id(value: Any) -> str:
    """An id, which some models write as a text or with a decimal point. ValueError for an invalid one."""
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    text = str(number) if isinstance(number, int | str) else ""
    if not _ID.fullmatch(text.strip()):
        raise ValueError(f'"id" is the number that fork returned, not {dump(value)[:64]}')
    return str(int(text))
