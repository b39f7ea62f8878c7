"""Native tool calls of chat endpoints ↔ their text form in tags, which all other modules use."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from orgthink.engines.engine import Tools
from orgthink.grammar.actions import THOUGHT
from orgthink.grammar.toolcall import (
    CALL_TAGS,
    REASONING_TAGS,
    RESPONSE_TAGS,
    ToolCall,
    read_call,
    read_reply,
    read_responses,
    render_call,
)
from orgthink.record.episode import Message


def offer(tools: Tools) -> dict[str, Any]:
    """Fields of a request that offer tools and allow parallel calls."""
    return {"tools": [{"type": "function", "function": dict(tool)} for tool in tools], "parallel_tool_calls": True}


_NAME_CHARACTERS = 1_000
"""Most characters of a tool's name."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """The part of a call in one event of a response."""

    index: int | None
    """Index of the call; `None` where the server gives none."""
    id: str | None
    """Id of the call, on its first fragment, if the server gives one."""
    name: str
    """Name of the tool, or a part of it."""
    arguments: str
    """The next characters of the JSON arguments."""


@dataclass(slots=True)
class _Call:
    """An incomplete call."""

    id: str | None
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    """Its parts."""

    def continued_by(self, fragment: Fragment) -> bool:
        """Whether a fragment continues this call, the last one of its index. Servers that give no index, or the same
        index to all calls, begin each call with a new id or name."""
        if fragment.id is not None and self.id is not None:
            return fragment.id == self.id
        return fragment.index is not None or not fragment.name


def calls_text(parts: Iterable[Fragment]) -> str:
    """The text form of the calls. Invalid JSON stays as it is, so that the grammar reports the error."""
    calls: list[_Call] = []
    latest: dict[int | None, _Call] = {}  # by index; the latest of all under None
    for part in parts:
        call = latest.get(part.index)
        if call is None or not call.continued_by(part):
            calls.append(call := _Call(part.id))
            latest[part.index] = latest[None] = call
        if part.name != call.name:  # some servers repeat it
            call.name = (call.name + part.name)[:_NAME_CHARACTERS]
        call.arguments.append(part.arguments)
    return "".join(_text(call) for call in calls)


def _text(call: _Call) -> str:
    arguments = "".join(call.arguments).strip() or "{}"
    text = f'{{"name": {json.dumps(call.name, ensure_ascii=False)}, "arguments": {arguments}}}'
    read = read_call(text)
    if isinstance(read, ToolCall):
        return render_call(read)
    for tag in (*REASONING_TAGS, *CALL_TAGS, THOUGHT):  # quoted tags must not be read as tags, even in an invalid call
        text = text.replace(tag, "\\u003c" + tag[1:])
    return f"{CALL_TAGS[0]}\n{text}\n{CALL_TAGS[1]}\n"


def messages(
    turns: Sequence[Message], reasoning: Sequence[str] = (), member: str = "reasoning_content"
) -> list[dict[str, Any]]:
    """The messages of a request: calls and responses are native where they match one to one, else text.

    The `reasoning` of the turns goes back in this member of their messages: DeepSeek refuses calls without it.
    """
    sent: list[dict[str, Any]] = []
    calls = 0
    skip = False
    for turn, after, thought in zip(turns, [*turns[1:], None], reasoning or [""] * len(turns), strict=True):
        if skip:
            skip = False
            continue
        exchange = None if after is None else _exchange(turn, after, calls)
        skip = exchange is not None
        calls += len(exchange[0]["tool_calls"]) if exchange else 0
        first, *others = exchange or [{"role": turn.role, "content": turn.content}]
        if thought:
            first[member] = thought
        sent += [first, *others]
    return sent


def _exchange(reply: Message, responses: Message, before: int) -> list[dict[str, Any]] | None:
    """Native messages of a reply with calls and of the turn with their responses; `None` for other turns."""
    if (reply.role, responses.role) != ("assistant", "user"):
        return None
    bodies, thoughts = _cut(reply.content, CALL_TAGS)
    values, rest = _cut(responses.content, RESPONSE_TAGS)
    calls = [call for call in map(read_call, bodies) if isinstance(call, ToolCall)]
    names = [response.name for response in read_responses(responses.content)]
    # The grammar decides: a call within the reasoning is not a call.
    if not calls or list(read_reply(reply.content).calls) != calls or [call.name for call in calls] != names:
        return None
    if len(bodies) != len(calls) or len(values) != len(calls):
        return None
    ids = [f"call{before + i:05d}" for i in range(len(calls))]  # some servers require nine letters and digits
    native = [_native(name, call) for name, call in zip(ids, calls, strict=True)]
    assistant = {"role": "assistant", "content": thoughts.strip() or None, "tool_calls": native}
    tools = [{"role": "tool", "tool_call_id": i, "content": v.strip()} for i, v in zip(ids, values, strict=True)]
    return [assistant, *tools, *([{"role": "user", "content": rest.strip()}] if rest.strip() else [])]


def _native(name: str, call: ToolCall) -> dict[str, Any]:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return {"id": name, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _cut(text: str, pair: tuple[str, str]) -> tuple[list[str], str]:
    """The contents of the elements with these tags, and the text outside of them."""
    first, *pieces = text.split(pair[0])
    elements = [piece.partition(pair[1]) for piece in pieces]
    return [body for body, _, _ in elements], first + "".join(rest for _, _, rest in elements)
