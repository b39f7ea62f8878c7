"""JSON as a model has to write it: strict when it is read, with errors that say how to repair them.

Python's decoder takes `NaN`, the last of two equal keys, halves of surrogate pairs and any depth. Each of them would
do its harm later: in a file, in a request, in code that recurses.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

DEPTH = 64
"""Levels that a value may nest."""
_EXCERPT = 24
"""Characters shown on either side of an error."""
_SURROGATE = re.compile("[\ud800-\udfff]")

_HINTS = {
    "Invalid control character": r"inside a string write a new line as \n and a tab as \t",
    "Invalid \\": r"inside a string write a backslash as \\",
    "Expecting ',' delimiter": r"put a comma between entries, and inside a string write a quote as \"",
    "Expecting property name": "put keys in double quotes, and no comma after the last entry",
    "Illegal trailing comma": "put no comma after the last entry",
    "Extra data": "write one object, and nothing after it",
    "Unterminated string": r"end the string, and inside it write a quote as \" and a tag's < as \u003c",
}
"""What repairs an error, by how Python's decoder names it."""


def parse(text: str) -> Any:
    """The value: keys that differ, finite numbers, whole characters. ValueError says what is wrong on one line."""
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_float=_float, parse_int=_int, parse_constant=_float)
        if not _is_shallow(value):
            raise RecursionError
    except json.JSONDecodeError as error:
        raise ValueError(_located(error)) from None
    except RecursionError:
        raise ValueError(f"the JSON nests too deep: at most {DEPTH} levels") from None
    if _SURROGATE.search(_dumps(value)):
        raise ValueError("a string holds half of a surrogate pair (\\ud800 to \\udfff): write the character itself")
    return value


def dump(value: Any) -> str:
    """On one line, with characters as they are but for halves of surrogate pairs, which no file can hold."""
    return _SURROGATE.sub(lambda half: escaped(half[0]), _dumps(value))


def escaped(character: str) -> str:
    r"""How a string of JSON can write it: `\u003c`."""
    return f"\\u{ord(character):04x}"


def kind(value: Any) -> str:
    """What a value is, in the words of JSON."""
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return "an empty string" if value == "" else names.get(type(value), "a number")


def shown(text: str) -> str:
    """The text in quotes, on one line, cut where it is long."""
    return dump(_on_one_line(text if len(text) <= 2 * _EXCERPT else text[: 2 * _EXCERPT] + "…"))


def _located(error: json.JSONDecodeError) -> str:
    """What a decoder found, where, and what to do."""
    before = _on_one_line(error.doc[max(0, error.pos - _EXCERPT) : error.pos])
    after = _on_one_line(error.doc[error.pos : error.pos + _EXCERPT])
    place = f"after `{before}`, before `{after}`" if after else f"at the end, after `{before}`"
    hint = next((f"; {hint}" for start, hint in _HINTS.items() if error.msg.startswith(start)), "")
    return f"not JSON at line {error.lineno} column {error.colno}, {place}: {error.msg}{hint}"


def _on_one_line(text: str) -> str:
    return "⏎".join(f"{text}\n".splitlines())


def _is_shallow(value: Any) -> bool:
    level = [value]
    for _ in range(DEPTH):
        level = [child for node in level for child in _children(node)]
    return not level


def _children(node: Any) -> Iterator[Any]:
    if isinstance(node, dict):
        yield from node.values()
    elif isinstance(node, list):
        yield from node


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = dict(pairs)
    if len(keys) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"the key {shown(twice)} stands twice in one object: write it once")
    return keys


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{shown(text)} is not a finite number of JSON: write a number, a string or null")
    return number


def _int(text: str) -> int:
    try:
        return int(text)
    except ValueError:  # Python's own limit
        raise ValueError(f"the number {shown(text)} has too many digits: write it as a string") from None


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
