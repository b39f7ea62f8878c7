"""Strict JSON for the output of models, with error messages that say how to repair it.

Python's decoder accepts `NaN`, duplicate keys, halves of surrogate pairs and any depth. Each would cause errors later:
in a file, in a request, in recursive code.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

DEPTH = 64
"""Most levels of nesting."""
_EXCERPT = 24
"""Characters excerpt on either side of an error."""
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
"""Hints for repair, by the beginning of the decoder's message."""


def parse(text: str) -> Any:
    """Parse JSON with unique keys, finite numbers and complete characters. ValueError with a message on one line."""
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_float=_float, parse_int=_int, parse_constant=_float)
        if not is_shallow(value):
            raise RecursionError
    except json.JSONDecodeError as error:
        raise ValueError(_located(error)) from None
    except RecursionError:
        raise ValueError(f"the JSON nests too deep: at most {DEPTH} levels") from None
    if _SURROGATE.search(_dumps(value)):
        raise ValueError("a string holds half of a surrogate pair (\\ud800 to \\udfff): write the character itself")
    return value


def dump(value: Any) -> str:
    """JSON on one line. Only halves of surrogate pairs are escaped, because UTF-8 cannot hold them."""
    return _SURROGATE.sub(lambda half: escaped(half[0]), _dumps(value))


def escaped(character: str) -> str:
    r"""The JSON escape of a character, such as `\u003c`."""
    return f"\\u{ord(character):04x}"


def kind(value: Any) -> str:
    """The JSON type of a value, for messages."""
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return "an empty string" if value == "" else names.get(type(value), "a number")


def excerpt(text: str) -> str:
    """The text in quotes, on one line, shortened if it is long."""
    return dump(_on_one_line(text if len(text) <= 2 * _EXCERPT else text[: 2 * _EXCERPT] + "…"))


def _located(error: json.JSONDecodeError) -> str:
    """The message of a decoder error, with its place and a hint."""
    before = _on_one_line(error.doc[max(0, error.pos - _EXCERPT) : error.pos])
    after = _on_one_line(error.doc[error.pos : error.pos + _EXCERPT])
    place = f"after `{before}`, before `{after}`" if after else f"at the end, after `{before}`"
    hint = next((f"; {hint}" for start, hint in _HINTS.items() if error.msg.startswith(start)), "")
    return f"not JSON at line {error.lineno} column {error.colno}, {place}: {error.msg}{hint}"


def _on_one_line(text: str) -> str:
    return "⏎".join(f"{text}\n".splitlines())


def is_shallow(value: Any) -> bool:
    """Whether JSON values have at most DEPTH levels of nesting."""
    level = [value]
    for _ in range(DEPTH):
        containers = [node for node in level if isinstance(node, dict | list)]
        level = [child for node in containers for child in (node.values() if isinstance(node, dict) else node)]
    return not level


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = dict(pairs)
    if len(keys) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"the key {excerpt(twice)} stands twice in one object: write it once")
    return keys


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{excerpt(text)} is not a finite number of JSON: write a number, a string or null")
    return number


def _int(text: str) -> int:
    try:
        return int(text)
    except ValueError:  # beyond Python's limit of digits
        raise ValueError(f"the number {excerpt(text)} has too many digits: write it as a string") from None


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
