"""What tasks share whose problems are the rows of a file."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from orgthink.episode import Problem
from orgthink.errors import UserError


def again_and_again(rows: Sequence[Problem], name: str, seed: int) -> Iterator[Problem]:
    """The problems of a file without end: in another order each time, and for each seed."""
    rng = random.Random(f"{name} {seed}")
    while True:
        yield from rng.sample(rows, len(rows))


class MissingFile(UserError):
    """A file of problems is not there."""

    def __init__(self, file: Path) -> None:
        super().__init__(f"no file of problems at {file}")
        self.file = file


def require_file(file: Path) -> None:
    """MissingFile if it is not there."""
    if not file.is_file():
        raise MissingFile(file)
