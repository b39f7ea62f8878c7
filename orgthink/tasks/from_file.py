"""Helpers for tasks with problems from the rows of a file."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from orgthink.grammar.strict_json import DEPTH, is_shallow
from orgthink.record.episode import Problem
from orgthink.util.errors import UserError


def repeated(rows: Sequence[Problem], name: str, seed: int) -> Iterator[Problem]:
    """An endless stream of the problems, in a new order on each pass and for each seed."""
    rng = random.Random(f"{name} {seed}")
    while True:
        yield from rng.sample(rows, len(rows))


class MissingFile(UserError):
    """A file of problems does not exist."""

    def __init__(self, file: Path) -> None:
        super().__init__(f"no file of problems at {file}")
        self.file = file


def require_file(file: Path) -> None:
    """MissingFile if the file does not exist."""
    if not file.is_file():
        raise MissingFile(file)


def require_shallow(problem: Problem, place: str) -> Problem:
    """The problem of a row. UserError if its data nest so deep that no record of it could be read again."""
    if not is_shallow(problem.data):
        raise UserError(f"{place}: its data nest too deep: at most {DEPTH} levels")
    return problem
