"""Expected errors: invalid requests, missing packages, failures of the outside world. Other exceptions are bugs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, distribution
from itertools import islice
from math import inf
from pathlib import Path
from typing import ClassVar, TypeVar
from urllib.parse import unquote, urlsplit

from orgthink.util.terminal import one_line

T = TypeVar("T")


class OneLine(Exception):
    """An error that is shown as one line, in notebooks too: its traceback says nothing to a user."""

    def __str__(self) -> str:
        return one_line(super().__str__())

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython shows in place of the traceback."""
        return [f"{type(self).__name__}: {self}"]


class UserError(OneLine, ValueError):
    """An invalid request; exit code 2. The message says what to do."""


class ErrorKind(StrEnum):
    """Origin of an error."""

    ENGINE = "engine"
    """An engine could not decode: the server is gone, or the prompt is too long."""
    TOOL = "tool"
    """A tool failed, or reported a failure."""
    PROTOCOL = "protocol"
    """A protocol error ended the agent: see the format errors."""
    BUDGET = "budget"
    """A budget ran out."""
    DEADLINE = "deadline"
    """The deadline passed."""


class Failure(OneLine):
    """An engine or a tool failed. In a fork it becomes the result of that fork."""

    kind: ClassVar[ErrorKind | None] = None
    """Origin of the error; `None` if unknown."""


class EngineError(Failure):
    """The engine failed on a request. Other requests may succeed."""

    kind = ErrorKind.ENGINE


class RequestRefused(EngineError):
    """The engine refused a request, and would refuse it again."""


class ContextFull(RequestRefused):
    """A prompt does not fit the context of the model."""


class EngineUnavailable(EngineError):
    """No server at the URL, or no such model. The message says what to do."""


class ToolError(Failure):
    """A tool failed: its server, its sandbox or its function."""

    kind = ErrorKind.TOOL


_COMPARED, _LONGEST_NAME = 100, 64
"""Most names that are compared, and most characters of each, because they may be foreign."""


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that is most similar to a wrong one; `None` if all differ too much."""
    short = (each for each in known if len(each) <= _LONGEST_NAME)
    near = get_close_matches(name[:_LONGEST_NAME], islice(short, _COMPARED), n=1, cutoff=cutoff)
    return near[0] if near else None


def pick(kind: str, name: str, table: Mapping[str, T]) -> T:
    """The entry of that name; UserError with a suggestion without one."""
    if name in table:
        return table[name]
    near = nearest(name, table, cutoff=0.5)
    hint = f"did you mean {near}?" if near else f"one of {', '.join(sorted(table))}" if table else "none is known"
    raise UserError(f"unknown {kind} {name!r}: {hint}")


def required(value: T | None, kind: str, option: str) -> T:
    """The value of an option; UserError, with the option, if it was left out."""
    if value is None:
        raise UserError(f"no {kind} is named: give {option}")
    return value


def require_at_least(least: float, settings: object, *names: str) -> None:
    """ValueError for the first of these settings that is less, or not a finite number. `None` is accepted."""
    for name in names:
        if (value := getattr(settings, name)) is not None and not least <= value < inf:
            wanted = f"at least {least:g}" if least else "a number from 0 on"
            raise ValueError(f"{name} is {value}: it must be {wanted}")


def require_above_zero(settings: object, *names: str) -> None:
    """ValueError for the first of these settings that is neither `None` nor a finite number above 0."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not 0 < value < inf:
            raise ValueError(f"{name} is {value}: it must be a number above 0")


@contextmanager
def user_input() -> Iterator[None]:
    """Turns a ValueError into a UserError."""
    try:
        yield
    except ValueError as error:
        raise error if isinstance(error, UserError) else UserError(str(error)) from error


HERE = Path(__file__).parents[2]
"""Folder that holds the package: a clone, if it was installed with `-e`, else `site-packages`."""


def pip_install(extras: str = "", package: str = "orgthink") -> str:
    """The command that installs extras, such as `local,math`, or a package of `packages/`, such as `orgthink-pocket`.

    It names the clone if orgthink was installed from one: what an index has may be older, or missing.
    """
    names, clone = extras and f"[{extras}]", _clone()
    if clone is None:
        return f"pip install {shlex.quote(package + names)}"
    where = "." if clone == Path.cwd() else str(clone)
    inner = "" if package == "orgthink" else f"/packages/{package.removeprefix('orgthink-')}"
    return f"pip install {'-e ' if clone == HERE else ''}{shlex.quote(where + inner + names)}"


@contextmanager
def needing(extras: str, what: str = "this command") -> Iterator[None]:
    """Around imports of extras: UserError with the command that installs them, if a module is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UserError(f"{what} needs {error.name}: {pip_install(extras)}") from error


def _clone() -> Path | None:
    """The clone that this file is in, or else the one that `pip install FOLDER` was given (PEP 610), if it is there."""
    try:
        origin = json.loads(distribution("orgthink").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    folders = HERE, Path(unquote(urlsplit(origin.get("url", "/")).path))
    return next((folder for folder in folders if (folder / "packages/pocket/pyproject.toml").is_file()), None)


DEMO = f"the demo models and tasks are a package of their own: {pip_install(package='orgthink-pocket')}"
"""How to install the demo models."""
