"""What is expected to go wrong: requests that cannot be met, and the outside world. Every other exception is a bug."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from enum import StrEnum
from itertools import islice
from math import inf
from typing import ClassVar, TypeVar

from orgthink.util.terminal import one_line

T = TypeVar("T")


class UserError(ValueError):
    """A request that cannot be met as it stands; exit code 2. The message is one line and says what to do."""

    def __str__(self) -> str:
        return one_line(super().__str__())


class ErrorKind(StrEnum):
    """Which boundary an error crossed."""

    ENGINE = "engine"
    """An engine could not decode: a server is gone, a prompt does not fit."""
    TOOL = "tool"
    """A tool could not do a call, or said that it went wrong."""
    PROTOCOL = "protocol"
    """What a model wrote broke the protocol, and that ended it: see the format errors."""
    BUDGET = "budget"
    """A budget forbade to go on."""
    DEADLINE = "deadline"
    """Its time was over."""
    PERSON = "person"
    """A person who was asked did not answer."""


class Failure(Exception):
    """The outside world failed: an engine, a tool. In the work of a fork it becomes a result, never the end of others.

    Shown as one line.
    """

    kind: ClassVar[ErrorKind | None] = None
    """Which boundary it crossed; `None` if whoever raised it does not say."""

    def __str__(self) -> str:
        return one_line(super().__str__())


class EngineError(Failure):
    """The engine could not go on with a request. Other requests and the engine itself may be fine."""

    kind = ErrorKind.ENGINE


class StreamDropped(EngineError):
    """An answer broke off. The same request may be answered in full."""


class RequestRefused(EngineError):
    """The engine does not accept what it was asked. It is not broken: the same request would be refused again."""


class ContextFull(RequestRefused):
    """A prompt does not fit the context of the model."""


class EngineUnavailable(EngineError):
    """There is no engine: no server at the URL, no such model. The message says what to do."""


class PersonDeclined(RequestRefused):
    """A person was asked and does not answer."""

    kind = ErrorKind.PERSON


class ToolError(Failure):
    """A tool could not do a call: its server, its sandbox or its function failed."""

    kind = ErrorKind.TOOL


_COMPARED, _LONGEST_NAME = 100, 64
"""Names that are compared with a wrong one, and their most characters: a stranger may have written them."""


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The name that is most like a wrong one; `None` if none is. It takes bounded time."""
    short = (each for each in known if len(each) <= _LONGEST_NAME)
    near = get_close_matches(name[:_LONGEST_NAME], islice(short, _COMPARED), n=1, cutoff=cutoff)
    return near[0] if near else None


def pick(kind: str, name: str, table: Mapping[str, T]) -> T:
    """The entry of that name; UserError with a suggestion without one."""
    if name in table:
        return table[name]
    near = nearest(name, table, cutoff=0.5)
    hint = f"did you mean {near}?" if near else f"one of {', '.join(sorted(table))}" if table else "there is none"
    raise UserError(f"unknown {kind} {name!r}: {hint}")


def required(value: T | None, kind: str, option: str) -> T:
    """The value of an option; UserError, with the option, if it was left out."""
    if value is None:
        raise UserError(f"no {kind} is named: give {option}")
    return value


def require_at_least(least: float, settings: object, *names: str) -> None:
    """ValueError for the first of these settings that is less, or not a finite number; `None` sets nothing."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not least <= value < inf:
            wanted = f"at least {least:g}" if least else "a number from 0 on"
            raise ValueError(f"{name} is {value}: it must be {wanted}")


def require_above_zero(settings: object, *names: str) -> None:
    """ValueError for the first of these settings that is not a finite number above 0."""
    for name in names:
        if not 0 < getattr(settings, name) < inf:
            raise ValueError(f"{name} is {getattr(settings, name)}: it must be a number above 0")


@contextmanager
def user_input() -> Iterator[None]:
    """Around code whose ValueError is about what the user asked for."""
    try:
        yield
    except ValueError as error:
        raise error if isinstance(error, UserError) else UserError(str(error)) from error
