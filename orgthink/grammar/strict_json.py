"""JSON that models write: all that Python's decoder reads, except what would fail later in a file or a request."""

from __future__ import annotations

import json
import re
from typing import Any

DEPTH = 64
"""Most levels of nesting."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_HINT = r"write one object; inside a string write a quote as \", a backslash as \\ and a new line as \n"


def parse(text: str) -> Any:
    """Parse JSON. ValueError with a message on one line."""
    try:
        value = json.loads(text)
        if not is_shallow(value):
            raise RecursionError
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON at line {error.lineno} column {error.colno}: {error.msg}; {_HINT}") from None
    except RecursionError:
        raise ValueError(f"the JSON nests too deep: at most {DEPTH} levels") from None
    except UnicodeEncodeError:
        raise ValueError("a string holds half of a surrogate pair (\\ud800 to \\udfff)") from None
    except ValueError:
        raise ValueError("a number is not finite or has too many digits: write it as a string") from None
    return value


def dump(value: Any) -> str:
    """JSON on one line. Only halves of surrogate pairs are escaped, because UTF-8 cannot hold them."""
    return _SURROGATE.sub(lambda half: escaped(half[0]), json.dumps(value, ensure_ascii=False))


def escaped(character: str) -> str:
    r"""The JSON escape of a character, such as `\u003c`."""
    return f"\\u{ord(character):04x}"


def kind(value: Any) -> str:
    """The JSON type of a value, for messages."""
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def is_shallow(value: Any) -> bool:
    """Whether JSON values have at most DEPTH levels of nesting."""
    level = [value]
    for _ in range(DEPTH):
        containers = [node for node in level if isinstance(node, dict | list)]
        level = [child for node in containers for child in (node.values() if isinstance(node, dict) else node)]
    return not level
