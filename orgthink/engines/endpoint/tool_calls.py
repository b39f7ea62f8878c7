"""Native tool calls of chat endpoints ↔ their text form in tags, which all other modules use."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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

REASONING_MEMBERS = ("reasoning_content", "reasoning")
"""Members of a message for reasoning: of DeepSeek, SGLang and llama.cpp; of vLLM, OpenRouter and Ollama."""


def offer(tools: Tools) -> dict[str, Any]:
    """Fields of a request that offer tools and allow parallel calls."""
    return {"tools": [{"type": "function", "function": dict(tool)} for tool in tools], "parallel_tool_calls": True}


@dataclass(frozen=True, slots=True)
class Fragment:
    """The part of a call in one event of a response."""

    index: int | None
    """Index of the call; `None` where the server gives none."""
    id: str | None
    """Id of the call, on its first fragment, if the server gives one."""
    name: str
    """Name of the tool; later fragments repeat it or have none."""
    arguments: str
    """The next characters of the JSON arguments."""


def calls_text(parts: Iterable[Fragment]) -> str:
    """The text form of the calls. Servers that give no index, or the same one to all calls, begin each call with a new
    id. Invalid JSON stays as it is, so that the grammar reports the error."""
    calls: list[list[Fragment]] = []
    latest: dict[int | None, list[Fragment]] = {}
    for part in parts:
        call = latest.get(part.index)
        if call is None or part.id not in (None, call[0].id):
            calls.append(call := [])
            latest[part.index] = call
        call.append(part)
    return "".join(map(_text, calls))


def _text(call: Sequence[Fragment]) -> str:
    name = next((part.name for part in call if part.name), "")
    arguments = "".join(part.arguments for part in call).strip() or "{}"
    text = f'{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments}}}'
    read = read_call(text)
    if isinstance(read, ToolCall):
        return render_call(read)
    for tag in (*REASONING_TAGS, *CALL_TAGS, THOUGHT):  # quoted tags must not be read as tags, even in an invalid call
        text = text.replace(tag, "\\u003c" + tag[1:])
    return f"{CALL_TAGS[0]}\n{text}\n{CALL_TAGS[1]}\n"


def messages(turns: Sequence[Message], reasoning: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The messages of a request: calls and responses are native where they match one to one, else text.

    The `reasoning` of the turns goes back under both of its names: DeepSeek refuses calls without it.
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
            first |= dict.fromkeys(REASONING_MEMBERS, thought)
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
