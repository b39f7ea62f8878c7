"""Fork and join as calls of any chat model: an organizer's calls ↔ the commands of AsyncThink.

    fork {"task": sub-query} → id        join {"id": id} → returned text
    cancel {"id": id}                    status {} → which sub-queries are done, and what is left of the budget
    tell {"id": id, "task": sub-query}, where workers are persistent
    fork {"task": sub-query, "model": name}, where there is a pool of models

Ids are numbers from 1 on. Unlike in the tags it is the runtime that gives them, so no key is forked twice. The names of
calls and arguments are data: `spawn_agent` and others are those of coding agents, which current models know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from orgthink.grammar.actions import Cancel, Command, Fork, Join, Poll, Tell
from orgthink.grammar.strict_json import dump, kind
from orgthink.grammar.toolcall import BadCall, ToolCall

_ID = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class CallNames:
    """Names of the calls, and of their arguments."""

    fork: str = "fork"
    join: str = "join"
    cancel: str = "cancel"
    status: str = "status"
    tell: str = "tell"
    """Known only where workers are persistent."""
    id: str = "id"
    """Argument with the id of a worker."""
    task: str = "task"
    """Argument with a sub-query."""

    @property
    def calls(self) -> tuple[str, ...]:
        """Names of all calls: no other tool of an agent that forks has them."""
        return self.fork, self.join, self.cancel, self.status, self.tell


CALL_NAMES = {
    "fork": CallNames(),
    "spawn_agent": CallNames(
        "spawn_agent", "wait_agent", "interrupt_agent", "list_agents", "send_message", "target", "message"
    ),
}
"""Dialects of the calls, by the name of the call that forks."""


@dataclass(frozen=True)
class ForkCalls:
    """The calls that an agent may make."""

    names: CallNames = CALL_NAMES["fork"]
    """Their names."""
    persistent: bool = False
    """Whether a joined worker may be told something."""
    models: tuple[str, ...] = ()
    """Members of the pool, the default first; empty: there is no pool."""

    @cached_property
    def tools(self) -> tuple[dict[str, Any], ...]:
        """The calls, as prompts and servers describe them."""
        names = self.names
        which = {names.id: {"type": "integer", "description": f"What {names.fork} returned."}}
        task = {
            names.task: {"type": "string", "description": "The subtask, with everything that the worker must know."}
        }
        model = {"type": "string", "enum": list(self.models), "description": "Who works on it."}
        again = f"After a {names.tell}, {names.join} it again." if self.persistent else "Each id is joined once."
        tools = [
            _described(
                names.fork,
                "Starts a worker on a subtask and returns its id at once. You go on meanwhile.",
                task,
                {"model": model} if self.models else None,
            ),
            _described(names.join, f"Waits until a worker is done and returns its result. {again}", which),
            _described(names.cancel, "Ends a worker whose result you do not need any more.", which),
            _described(
                names.status, "Tells which workers are done and what is left of the budget, without a wait.", {}
            ),
            _described(names.tell, "Gives a joined worker, which still knows its work, a next subtask.", which | task),
        ]
        return tuple(tools if self.persistent else tools[:-1])

    def command(self, call: ToolCall | BadCall, key: str) -> Command:
        """The command of a call; a Fork gets the key. ValueError, with the reason, for an invalid call."""
        if isinstance(call, BadCall):
            raise ValueError(call.problem)
        _require(call, self.tools)
        names, given = self.names, call.arguments
        match names.calls.index(call.name):
            case 0:
                return Fork(key, self._text(names.task, given), self._model(given))
            case 1:
                return Join(self._id(given))
            case 2:
                return Cancel(self._id(given))
            case 3:
                return Poll()
            case _:
                return Tell(self._id(given), self._text(names.task, given))

    def _text(self, name: str, given: dict[str, Any]) -> str:
        if not isinstance(given[name], str):
            raise ValueError(f'"{name}" is the text of the subtask, not {kind(given[name])}')
        return given[name]

    def _model(self, given: dict[str, Any]) -> str:
        """The member that a Fork names, if it names one: some models write null for none."""
        model = given.get("model")
        if not isinstance(model, str | None):
            raise ValueError(f'"model" is the name of a model, not {kind(model)}')
        return (model or "").strip()

    def _id(self, given: dict[str, Any]) -> str:
        """An id, which some models write as a text or with a decimal point. ValueError for an invalid one."""
        name, value = self.names.id, given[self.names.id]
        if isinstance(value, list):
            raise ValueError(f'"{name}" is one id: make a call for each')
        number = int(value) if isinstance(value, float) and value.is_integer() else value
        text = str(number) if isinstance(number, int | str) else ""
        if not _ID.fullmatch(text.strip()):
            raise ValueError(f'"{name}" is the number that {self.names.fork} returned, not {dump(value)[:64]}')
        return str(int(text))


def _described(
    name: str, description: str, required: dict[str, Any], optional: dict[str, Any] | None = None
) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": required | (optional or {}),
        "required": list(required),
        "additionalProperties": False,
    }
    return {"name": name, "description": description, "parameters": schema}


def _require(call: ToolCall, tools: Iterable[dict[str, Any]]) -> None:
    """ValueError for a call of another name, or with other arguments."""
    known = {tool["name"]: tool["parameters"] for tool in tools}
    if call.name not in known:
        raise ValueError(f"there is no tool {call.name[:64]!r}: it is one of {', '.join(known)}")
    expected = known[call.name]
    if not set(expected["required"]) <= set(call.arguments) <= set(expected["properties"]):
        form = "{" + ", ".join(f'"{name}": …' for name in expected["properties"]) + "}"
        raise ValueError(f"the arguments of {call.name} are {form}")
