"""Native tool calls of chat endpoints ↔ the text in which all that is above an engine reads and writes them.

That text has the default tags: who reads others offers no tools and lists them in the prompt.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from orgthink.engines.engine import Tools
from orgthink.episode import Message
from orgthink.grammar.solution import THOUGHT
from orgthink.grammar.toolcall import TAGS, ToolCall, read_call, read_reply, read_responses, render_call

NOOP = {"name": "noop", "description": "Does nothing.", "parameters": {"type": "object", "properties": {}}}
"""A tool to be offered where only the answer to the offer matters."""


def offer(tools: Tools) -> dict[str, Any]:
    """Fields of a request that let the model call tools, several at once."""
    return {"tools": [{"type": "function", "function": dict(tool)} for tool in tools], "parallel_tool_calls": True}


@dataclass(frozen=True, slots=True)
class Fragment:
    """What one event of an answer adds to a call."""

    index: int | None
    """Place of the call; `None` where the server does not tell."""
    id: str | None
    """Of the call; on its first fragment, if at all."""
    name: str
    """Of the tool, or a part of it."""
    arguments: str
    """The next characters of their JSON."""


def fragments(raw: Any) -> tuple[Fragment, ...]:
    """The `tool_calls` of an event; raises what a value of another shape raises."""
    return tuple(_fragment(each, each.get("function") or {}) for each in raw or ())


def _fragment(raw: dict[str, Any], function: dict[str, Any]) -> Fragment:
    arguments = function.get("arguments") or ""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return Fragment(raw.get("index"), raw.get("id") or None, str(function.get("name") or ""), text)


@dataclass(slots=True)
class _Call:
    """A call in the making."""

    index: int | None
    id: str | None
    name: str = ""
    arguments: str = ""

    def takes(self, fragment: Fragment) -> bool:
        """Whether a fragment goes on with this call, the last of its index. Servers that give no index, or the same one
        to every call, begin each with an id or a name of its own."""
        if fragment.id is not None and self.id is not None:
            return fragment.id == self.id
        return fragment.index is not None or not fragment.name


def spoken(parts: Iterable[Fragment]) -> str:
    """The calls as text. Arguments that are no JSON stay as they came, so that the grammar tells what is wrong."""
    calls: list[_Call] = []
    for part in parts:
        call = next((call for call in reversed(calls) if part.index in (call.index, None)), None)
        if call is None or not call.takes(part):
            calls.append(call := _Call(part.index, part.id))
        if part.name != call.name:  # some servers repeat it
            call.name += part.name
        call.arguments += part.arguments
    return "".join(_text(call) for call in calls)


def _text(call: _Call) -> str:
    text = f'{{"name": {json.dumps(call.name, ensure_ascii=False)}, "arguments": {call.arguments.strip() or "{}"}}}'
    read = read_call(text)
    if isinstance(read, ToolCall):
        return render_call(read)
    for tag in (*TAGS.reasoning, *TAGS.call, THOUGHT):  # quoted, it is none: not even in a broken call
        text = text.replace(tag, "\\u003c" + tag[1:])
    return f"{TAGS.call[0]}\n{text}\n{TAGS.call[1]}\n"


def messages(turns: Sequence[Message]) -> list[dict[str, Any]]:
    """A conversation as a request has it: calls and responses natively where they match one to one, else as text."""
    sent: list[dict[str, Any]] = []
    calls = 0
    skip = False
    for turn, after in zip(turns, [*turns[1:], None], strict=True):
        if skip:
            skip = False
            continue
        exchange = None if after is None else _exchange(turn, after, calls)
        skip = exchange is not None
        calls += len(exchange[0]["tool_calls"]) if exchange else 0
        sent += exchange or [{"role": turn.role, "content": turn.content}]
    return sent


def _exchange(reply: Message, said: Message, before: int) -> list[dict[str, Any]] | None:
    """A reply that calls tools, what these said, and what else was said; `None` if that is not what the turns are."""
    if (reply.role, said.role) != ("assistant", "user"):
        return None
    bodies, thoughts = _cut(reply.content, TAGS.call)
    values, rest = _cut(said.content, TAGS.response)
    calls = [call for call in map(read_call, bodies) if isinstance(call, ToolCall)]
    names = [response.name for response in read_responses(said.content)]
    # The grammar has the last word: a call that a thought mentions is none.
    if not calls or list(read_reply(reply.content).calls) != calls or [call.name for call in calls] != names:
        return None
    if len(bodies) != len(calls) or len(values) != len(calls):
        return None
    ids = [f"call{before + i:05d}" for i in range(len(calls))]  # nine letters and digits: some servers ask for these
    made = [_made(name, call) for name, call in zip(ids, calls, strict=True)]
    assistant = {"role": "assistant", "content": thoughts.strip() or None, "tool_calls": made}
    tools = [{"role": "tool", "tool_call_id": i, "content": v.strip()} for i, v in zip(ids, values, strict=True)]
    return [assistant, *tools, *([{"role": "user", "content": rest.strip()}] if rest.strip() else [])]


def _made(name: str, call: ToolCall) -> dict[str, Any]:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return {"id": name, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _cut(text: str, pair: tuple[str, str]) -> tuple[list[str], str]:
    """What stands in the elements of these tags, and the text around them."""
    first, *pieces = text.split(pair[0])
    elements = [piece.partition(pair[1]) for piece in pieces]
    return [body for body, _, _ in elements], first + "".join(rest for _, _, rest in elements)
