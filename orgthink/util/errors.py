"""Expected errors: invalid requests, failures of the outside world. Other exceptions are bugs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from enum import StrEnum
from itertools import islice
from math import inf
from typing import ClassVar, TypeVar

from orgthink.util.terminal import one_line, reason

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
def explained(what: str, *errors: type[Exception], by: type[Exception] | None = None) -> Iterator[None]:
    """Turns these errors into a UserError, or one of the class `by`, that begins with what failed. A UserError stays as
    it is, unless it is one of them."""
    try:
        yield
    except errors as error:
        if isinstance(error, UserError) and UserError not in errors:
            raise
        # The words of a UserError are in the new one: a traceback needs them once.
        raise (by or UserError)(f"{what}: {error if isinstance(error, OneLine) else reason(error)}") from (
            error.__cause__ if isinstance(error, UserError) else error
        )


@contextmanager
def user_input() -> Iterator[None]:
    """Turns a ValueError into a UserError."""
    try:
        yield
    except UserError:
        raise
    except ValueError as error:
        raise UserError(str(error)) from error
