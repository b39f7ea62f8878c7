r"""A manager's reply ↔ its reasoning and calls, and the responses to them (Table 7 and Appendix F of ParaManager).

    <reasoning> … </reasoning>
    <tool_call>
    {"name": "python", "arguments": {"code": "print(1)"}}
    </tool_call>

An element begins at its opening tag and ends at its first closing tag. Elements do not nest, so a call that is quoted
in another call or in the reasoning is never run. A tag within a string is written with `\u003c` for its `<`; rendering
does so. Each call is parsed alone: an invalid one becomes a `BadCall` and does not affect the others. One error is
repaired: if a complete JSON value is followed by the next opening tag, the missing closing tag is assumed.

Untrained models forget the tags: in a reply without a call in tags, JSON objects of calls that stand on lines of their
own, in a code fence or without, are calls. Such a reply is not well-formed.

Thinking is not part of the reply: text up to the last `</think>` is ignored, and so is the text after a `<think>` that
never ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from orgthink.grammar.actions import THINK, THOUGHT
from orgthink.grammar.strict_json import dump, escaped, kind, parse
from orgthink.util.redaction import redact

FINAL = "final_answer"
"""The call that ends the rounds. It has no arguments and is not a tool."""

CUT = " … (cut) … "
"""Stands for the middle of a text that is too long."""

_TAG_LIKE = re.compile(r"<(?![\s\d=])")
"""Possible beginning of a tag of any grammar. It does not match `1 < 2`, `x<3` and `n<=4`."""
_NAME = re.compile(r'\s*\{\s*"name"\s*:\s*"([^"\\]{1,64})"')

_BARE = re.compile(r'^[ \t]*(?=\{\s*"(?:name|arguments)")', re.MULTILINE)
_LINE_END = re.compile(r"[ \t\r]*$", re.MULTILINE)
_DECODER = json.JSONDecoder()


class CallStatus(StrEnum):
    """Status of a call: σ of section 3.1."""

    OK = "OK"
    PARSE_ERR = "PARSE_ERR"
    EXEC_ERR = "EXEC_ERR"
    TIMEOUT = "TIMEOUT"


REASONING_TAGS = ("<reasoning>", "</reasoning>")
"""Tags around the reasoning."""
CALL_TAGS = ("<tool_call>", "</tool_call>")
"""Tags around each call."""
RESPONSE_TAGS = ("<tool_response>", "</tool_response>")
"""Tags around each response."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A valid call. The grammar does not check whether the tool exists and accepts the arguments."""

    name: str
    """Name of the tool."""
    arguments: dict[str, Any]
    """Arguments by parameter."""


@dataclass(frozen=True, slots=True)
class BadCall:
    """An invalid call."""

    text: str
    """Text between its tags."""
    problem: str
    """The error and its place, on one line, so that the model can repair it."""
    name: str | None = None
    """Name of the tool, if it can be found."""


@dataclass(frozen=True, slots=True)
class ManagerReply:
    """A manager's text of one round."""

    reasoning: str | None
    """Its reasoning; `None` without that element."""
    calls: tuple[ToolCall | BadCall, ...]
    """Calls in the order of the text."""
    well_formed: bool
    """Fmt(y_t) of Eq. 12: the reasoning, then one or more calls, all readable, and nothing else except white space.
    Whether they can be made is not asked. Text up to `</think>` does not count."""


@dataclass(frozen=True, slots=True)
class Response:
    """The result of a call."""

    name: str
    """Name of the tool."""
    status: CallStatus
    """σ."""
    value: str
    """The returned value, or the error."""
    subtask: str | None = None
    """The subtask, if the response repeats it."""


class _Element(NamedTuple):
    """A piece of a reply."""

    tag: str
    """Its opening tag."""
    body: str
    """Text between its tags."""
    closed: bool
    """Whether it has a closing tag."""


def read_reply(text: str) -> ManagerReply:
    """Parse the reasoning and the calls of any text, in linear time. Never raises."""
    elements, outside = _elements(text.rpartition(THOUGHT)[2])
    thoughts = [element.body.strip() for element in elements if element.tag == REASONING_TAGS[0]]
    calls = tuple(_judge(element) for element in elements if element.tag == CALL_TAGS[0]) or _bare_calls(outside)
    well_formed = (
        not outside.strip()
        and len(thoughts) == 1
        and elements[0].tag == REASONING_TAGS[0]
        and bool(calls)
        and all(isinstance(call, ToolCall) for call in calls)
    )
    return ManagerReply(thoughts[0] if thoughts else None, calls, well_formed)


def _bare_calls(text: str) -> tuple[ToolCall, ...]:
    """Calls without tags, up to the first that cannot be read: to try more would take quadratic time."""
    calls: list[ToolCall] = []
    end = 0
    for line in _BARE.finditer(text.partition(THINK)[0]):
        if line.start() < end or text[: line.start()].rstrip().endswith(">"):  # within tags of another kind
            continue
        try:
            _, end = _DECODER.raw_decode(text, line.end())
            call = _call(parse(text[line.end() : end]))
        except (ValueError, RecursionError):
            break
        if _LINE_END.match(text, end):
            calls.append(call)
    return tuple(calls)


def read_call(text: str) -> ToolCall | BadCall:
    """Parse the JSON of a call, as it stands between two tags. Never raises."""
    return _judge(_Element(CALL_TAGS[0], text, closed=True))


def render_reply(reasoning: str | None, calls: Iterable[ToolCall]) -> str:
    """The text of a reply. A closing tag or `</think>` within the reasoning is written with `&lt;` for its `<`."""
    opening, closing = REASONING_TAGS
    thoughts = reasoning or ""
    for tag in (closing, THOUGHT):
        thoughts = thoughts.replace(tag, "&lt;" + tag[1:])
    return ("" if reasoning is None else f"{opening}\n{thoughts}\n{closing}\n") + "".join(map(render_call, calls))


def render_call(call: ToolCall) -> str:
    """The text of a call; parsing gives the same call."""
    text = dump({"name": call.name, "arguments": call.arguments})
    for tag in (*REASONING_TAGS, *CALL_TAGS, *RESPONSE_TAGS, THOUGHT):
        text = text.replace(tag, escaped("<") + tag[1:])
    return _wrap(text, CALL_TAGS)


def cut_middle(text: str, characters: int) -> str:
    """A text without its middle, if it is longer: so many characters of its two ends, and a mark between them.

    Secrets are found before, so that none is left by half.
    """
    if len(text) <= characters or len(text := redact(text)) <= characters:
        return text
    half = characters // 2
    return f"{text[:half]}{CUT}{text[len(text) - half :]}"


def render_responses(responses: Iterable[Response]) -> str:
    """The text of responses for the manager. A value can neither close its element nor look like a tag."""
    return "".join(_wrap(_safe(_fields(response)), RESPONSE_TAGS) for response in responses)


def render_result(response: Response) -> str:
    """Status and value of a result that no call asked for, on a line."""
    return f"{_safe({'status': str(response.status), 'value': response.value})}\n"


def _safe(fields: dict[str, str]) -> str:
    return _TAG_LIKE.sub(lambda _: escaped("<"), dump(fields))


def read_responses(text: str) -> tuple[Response, ...]:
    """Parse responses that `render_responses` wrote; any other text is ignored."""
    opening, closing = RESPONSE_TAGS
    bodies = [piece.partition(closing) for piece in text.split(opening)[1:]]
    found = [_response(body) for body, closed, _ in bodies if closed]
    return tuple(response for response in found if response is not None)


_CLOSINGS = dict((REASONING_TAGS, CALL_TAGS))
_MARKS = re.compile("|".join(map(re.escape, (*REASONING_TAGS, *CALL_TAGS, THINK))))


def _elements(text: str) -> tuple[list[_Element], str]:
    """The elements in order, and the text outside of them. Reasoning without a closing tag is outside."""
    elements: list[_Element] = []
    outside: list[str] = []
    last_thought = text.rfind(REASONING_TAGS[1])
    begin, end, nested = None, 0, False
    for mark in _MARKS.finditer(text):
        if begin is None:
            if mark[0] == THINK:
                break  # new or unfinished thinking
            if mark[0] == CALL_TAGS[0] or (mark[0] == REASONING_TAGS[0] and mark.start() < last_thought):
                outside.append(text[end : mark.start()])
                begin, nested = mark, False
        elif mark[0] == _CLOSINGS[begin[0]]:
            elements.append(_Element(begin[0], text[begin.end() : mark.start()], closed=True))
            begin, end = None, mark.end()
        elif mark[0] == begin[0] == CALL_TAGS[0] and not nested:
            nested = True  # only the first is tried: trying each would take quadratic time
            body = text[begin.end() : mark.start()]
            if _is_json(body):
                elements.append(_Element(begin[0], body, closed=False))
                begin, nested = mark, False
    if begin is None:
        return elements, "".join([*outside, text[end:]])
    return [*elements, _Element(begin[0], text[begin.end() :], closed=False)], "".join(outside)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _judge(element: _Element) -> ToolCall | BadCall:
    """Parse a call."""
    text = element.body.strip()
    try:
        if not element.closed:
            raise ValueError(f"the call is not closed: write {CALL_TAGS[1]} after its JSON object")
        return _call(parse(text))
    except ValueError as error:
        nested = f"; close a call before the next {CALL_TAGS[0]}, and write a tag's < inside a string as \\u003c"
        problem = str(error) + (nested if CALL_TAGS[0] in text else "")
    named = _NAME.match(text)
    return BadCall(text, problem, named[1] if named else None)


def _call(value: Any) -> ToolCall:
    """The call of a JSON value. Raises ValueError."""
    form = 'a call is one object {"name": …, "arguments": {…}}'
    if not isinstance(value, dict):
        raise ValueError(f"{form}, not {kind(value)}")
    if set(value) != {"name", "arguments"}:
        raise ValueError(f"{form}, without other keys: it has {dump(list(value))[:80]}")
    name, arguments = value["name"], value["arguments"]
    if not isinstance(name, str) or not name:
        raise ValueError('"name" is the name of a tool')
    if not isinstance(arguments, dict):
        raise ValueError(f'"arguments" is an object {{"parameter": value}}, not {kind(arguments)}')
    return ToolCall(name, arguments)


def _fields(response: Response) -> dict[str, str]:
    subtask = {} if response.subtask is None else {"subtask": response.subtask}
    return {"name": response.name, **subtask, "status": str(response.status), "value": response.value}


def _response(body: str) -> Response | None:
    try:
        fields = json.loads(body)
        response = Response(fields["name"], CallStatus(fields["status"]), fields["value"], fields.get("subtask"))
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return response if all(isinstance(value, str) for value in _fields(response).values()) else None


def _wrap(text: str, pair: tuple[str, str]) -> str:
    return f"{pair[0]}\n{text}\n{pair[1]}\n"
