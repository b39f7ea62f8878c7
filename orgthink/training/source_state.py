"""State of a source of rows between steps, as a JSON file in the checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from orgthink.util.errors import UserError
from orgthink.util.files import read_whole, write_whole
from orgthink.util.validation import plain, typed

T = TypeVar("T")

MOST = 1 << 32
"""Largest size of a state, in bytes: it may hold everything that was sampled and is not trained on yet."""


def save_state(file: Path, state: Any) -> None:
    """Write a dataclass as JSON."""
    write_whole(file, json.dumps(plain(state)).encode())


def load_state(file: Path, cls: type[T], upgraded: Callable[[Any], Any] = lambda data: data) -> T:
    """Read a dataclass of type `cls`. `upgraded` converts the JSON values of older releases.

    UserError that names the file if it is damaged or holds something else.
    """
    try:
        data = json.loads(read_whole(file, MOST))
    except UserError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} cannot be read: {error}") from error
    return typed(cls, upgraded(data), file)
