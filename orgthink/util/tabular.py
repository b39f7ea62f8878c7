"""Files of rows: parquet, Arrow, CSV, JSON lines, or a JSON list; and objects of JSON or TOML.

Only parquet and Arrow import pyarrow."""

from __future__ import annotations

import codecs
import csv
import io
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from orgthink.util.errors import UserError
from orgthink.util.files import read_whole

_UNREADABLE = (ArithmeticError, LookupError, NotImplementedError, OSError, TypeError, ValueError)
"""What a table of parquet or Arrow raises: of dates that Python does not have, time zones that nobody knows, and what
pyarrow itself raises."""


def has_parquet() -> bool:
    """Whether parquet can be read and written: pyarrow is installed."""
    return find_spec("pyarrow") is not None


def read_rows(file: Path, columns: Sequence[str]) -> Iterator[Any]:
    """The rows of a file: of `.parquet` those of these columns that it has, in capitals or not; of `.csv` and `.arrow`,
    as `datasets` stores it, all columns; else all JSON values, one a line or in a list. The mark of UTF-8 that
    programs on Windows begin a file with is passed over.

    UserError that names the file, and the row (the first is 1) that is not JSON.
    """
    if file.suffix in (".parquet", ".arrow", ".csv"):
        read = {".arrow": _read_arrow, ".csv": _read_csv}.get(file.suffix)
        yield from _read_parquet(file, columns) if read is None else read(file)
        return
    with file.open("rb") as lines:
        number = 0
        for line in lines:
            line = line.removeprefix(codecs.BOM_UTF8) if number == 0 else line
            if number == 0 and line.lstrip().startswith(b"["):
                yield from _json(line + lines.read(), str(file))
                return
            if line.strip():
                number += 1
                yield _json(line, f"{file}, row {number}")


def json_object(file: Path) -> dict[str, Any]:
    """The JSON object in a file. UserError that names the file if it holds none; OSError if there is no such file."""
    try:
        values = json.loads(read_whole(file))
    except UserError:
        raise
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise UserError(f"{file} holds no JSON object")
    return values


def toml_tables(file: Path) -> dict[str, Any]:
    """What a TOML file holds. UserError that names the file if it cannot be read."""
    try:
        return tomllib.loads(read_whole(file).decode())
    except UserError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} cannot be read: {error}") from error


def parquet_bytes(rows: Sequence[Mapping[str, Any]], file: Path, types: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a parquet table for `file`. `types` maps each column to pyarrow's name of its type; by default both
    are inferred from the rows.

    UserError with the name of the file if pyarrow is missing or a value does not fit its type.
    """
    arrow, parquet = _pyarrow(file)
    fields = None if types is None else [(name, arrow.type_for_alias(kind)) for name, kind in types.items()]
    schema = None if fields is None else arrow.schema(fields)
    content = io.BytesIO()
    try:
        parquet.write_table(arrow.Table.from_pylist(list(rows), schema), content)
    except (ValueError, OverflowError) as error:  # half a surrogate pair, or a number past 64 bits
        raise UserError(f"{file} cannot be written: {error}") from error
    return content.getvalue()


def _read_parquet(file: Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    _, parquet = _pyarrow(file)
    try:
        with parquet.ParquetFile(file) as table:
            wanted = {name.lower() for name in columns}
            known = [name for name in table.schema_arrow.names if name.lower() in wanted]
            for batch in table.iter_batches(columns=known):
                yield from batch.to_pylist()
    except _UNREADABLE as error:
        raise UserError(f"{file} cannot be read as parquet: {type(error).__name__}: {error}") from error


def _read_arrow(file: Path) -> Iterator[dict[str, Any]]:
    arrow, _ = _pyarrow(file)
    try:
        with arrow.memory_map(str(file)) as source, arrow.ipc.open_stream(source) as table:
            for batch in table:
                batch.validate(full=True)  # an offset may lie far outside of its column
                yield from batch.to_pylist()
    except _UNREADABLE as error:
        raise UserError(f"{file} cannot be read as Arrow: {type(error).__name__}: {error}") from error


def _read_csv(file: Path) -> Iterator[dict[str, Any]]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            yield from csv.DictReader(lines)
    except (ValueError, csv.Error) as error:
        raise UserError(f"{file} cannot be read as CSV in UTF-8: {error}") from error


def _json(text: bytes, place: str) -> Any:
    try:
        return json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        forms = "one object on each line, or one list of all"
        raise UserError(f"{place}: not JSON in UTF-8 ({forms}): {error}") from error


def _pyarrow(file: Path) -> tuple[Any, Any]:
    """pyarrow and its module for parquet; UserError with the name of the file if they are missing."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise UserError(f"{file} needs {error.name}: pip install 'orgthink[data]'") from error
    return pyarrow, parquet
