"""What the person at the keyboard can put right. The command line shows it as one line, with exit code 2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TypeVar

T = TypeVar("T")


class UserError(ValueError):
    """A request that cannot be met as it stands. The message is one line and says what to do."""


def pick(kind: str, name: str, table: Mapping[str, T]) -> T:
    """The entry of that name; UserError with a suggestion without one."""
    if name in table:
        return table[name]
    near = get_close_matches(name, table, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(sorted(table))}"
    raise UserError(f"unknown {kind} {name!r}: {hint}")


@contextmanager
def user_input() -> Iterator[None]:
    """Around code whose ValueError is about what the user asked for."""
    try:
        yield
    except ValueError as error:
        raise error if isinstance(error, UserError) else UserError(str(error)) from error
