"""References to code and files in settings: find them, and make their paths absolute."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from orgthink.util.tabular import TABLES

_CODE = r"(?P<module>.+\.py|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+):(?P<name>[A-Za-z_]\w*)"
_REFERENCE = re.compile(_CODE)
"""`file.py:Name` or `package.module:Name`. A module without a dot would look like a task with a file."""

_ANY_REFERENCE = re.compile(r"\.[A-Za-z_]\w*:[A-Za-z_]")
"""A part that every reference contains: `.py:N`, `.module:N`."""

_FAMILY = re.compile(rf"[a-z][a-z-]*:(?={_CODE})")
"""The family before a reference in the name of a task: `bench:` in `bench:mine.py:ROWS`."""

_PROBLEMS = re.compile(r"(?P<task>[a-z][a-z-]*:(?:[a-z][a-z0-9.-]*:)?)?(?P<file>[^:?@]+)(?P<rest>[?@].*)?")
"""A task with a file of problems: `math:FILE`, `bench:aime25:FILE`, `math:FILE@1/2`, or a table alone."""

_FOLDERS = re.compile(r"^[^:]*/(?=[^/:]*\.(?:parquet|jsonl?|csv)\b)")
"""The folders of a file of rows that is a task by itself."""

_OPTION = re.compile(r"([\w.-]+=)?(.*)", re.DOTALL)
"""The name in an option `NAME=VALUE`, if there is one, and the value."""

_PARTS = re.compile(r"[^+#]+")
"""The parts of a task's name, which may join several tasks and a grader."""


def is_reference(name: str) -> bool:
    """Whether a name has the form `package.module:Name` or `file.py:Name`."""
    return _REFERENCE.fullmatch(name) is not None


def split_reference(name: str) -> tuple[str, str] | None:
    """Split `file.py:Reader:rows.jsonl` into the reference and the rest; `None` without a reference."""
    found = _REFERENCE.match(name)
    if found is None or name[found.end() :][:1] not in ("", ":"):
        return None
    return found[0], name[found.end() + 1 :]


def references(value: Any) -> Iterator[str]:
    """All strings in JSON values that contain a reference."""
    match value:
        case str():
            yield from [value] if _ANY_REFERENCE.search(value) else []
        case Mapping():
            yield from (found for each in (*value, *value.values()) for found in references(each))
        case list() | tuple():
            yield from (found for each in value for found in references(each))


def absolute(value: Any) -> Any:
    """JSON values with absolute paths of Python files, prompt files, problem files, and folders with a `/` in their
    name: valid in any working folder."""
    match value:
        case str():
            name, path = ("", value) if os.path.exists(value) else _OPTION.findall(value)[0]
            if os.sep in path and os.path.isdir(path):
                return f"{name}{Path(path).resolve()}"
            return name + _PARTS.sub(lambda part: _absolute(part[0]), path)
        case Mapping():
            return {key: each if is_server_model(key, value) else absolute(each) for key, each in value.items()}
        case list() | tuple():
            return [absolute(each) for each in value]
    return value


def is_server_model(key: str, settings: Mapping[str, Any]) -> bool:
    """Whether a setting is a server's name for its model, which is neither a path nor code."""
    return key == "model" and settings.get("url") is not None


def _absolute(name: str) -> str:
    if family := _FAMILY.match(name):
        return f"{family[0]}{_absolute(name[family.end() :])}"
    found = _REFERENCE.match(name)
    file = found["module"] if found is not None else name
    if file.endswith((".py", ".toml")) and os.path.isfile(file):  # False for an impossible path
        return f"{Path(file).resolve()}{name[len(file) :]}"
    problems = _PROBLEMS.fullmatch(name)
    if problems and (problems["task"] or problems["file"].endswith(TABLES)) and os.path.exists(problems["file"]):
        return f"{problems['task'] or ''}{Path(problems['file']).resolve()}{problems['rest'] or ''}"
    return name


def short_name(task: str) -> str:
    """A task's name without files and modules: `countdown+Dice` for `countdown+mine.py:Dice`."""
    bare = (_FAMILY.sub("", part, count=1) for part in task.partition("#")[0].split("+"))
    named = (_FOLDERS.sub("", part.removeprefix("bench:").removeprefix("hf:")) for part in bare)
    parts = (_REFERENCE.match(part) or part for part in named)
    return "+".join(part.partition(":")[0] if isinstance(part, str) else part["name"] for part in parts)
