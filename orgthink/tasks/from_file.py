"""What tasks share whose problems are the rows of a file."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

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


def parquet_rows(file: Path, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of a parquet file, with those of the columns that it has. UserError that names the file."""
    _, parquet = pyarrow_for(file)
    try:
        with parquet.ParquetFile(file) as table:
            known = [name for name in columns if name in table.schema_arrow.names]
            return table.read(columns=known).to_pylist()
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
        raise UserError(f"{file} cannot be read as parquet: {error}") from error


def pyarrow_for(file: Path) -> tuple[Any, Any]:
    """pyarrow and its module for parquet; UserError that names the file without them."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise UserError(f"{file} needs {error.name}: pip install 'orgthink[data]'") from error
    return pyarrow, parquet
