"""Files of rows: parquet, CSV, JSON lines, or a JSON list; and JSON and TOML objects. Only parquet imports pyarrow."""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orgthink.util.errors import UserError, explained
from orgthink.util.files import made, open_to_read, read_whole, write_whole
from orgthink.util.install import needing

TABLES = (".parquet", ".jsonl", ".json", ".csv")
"""Suffixes of files of rows."""

EXPANDED, RATIO = 1 << 30, 100
"""Most bytes of the rows of a parquet file: so many, and so many times its size."""
VALUE = 64
"""Bytes of a value in Python, about."""


def read_rows(file: Path, columns: Sequence[str]) -> Iterator[Any]:
    """The rows of a file: `.parquet` (only these columns, in any case), `.csv`, JSON lines or a JSON list.

    UserError with the file, and for JSON with the row, from 1, that cannot be read.
    """
    if file.suffix == ".parquet":
        yield from _read_parquet(file, columns)
    elif file.suffix == ".csv":
        yield from _read_csv(file)
    else:
        yield from _read_json(file)


def store_rows(given: Any, folder: Path) -> tuple[str, int]:
    """Write rows that are given in Python (a list of mappings, a pandas DataFrame, a data set of `datasets`) as JSON
    lines into the folder. Returns the file, which has the same name for the same rows, and their number. UserError for
    anything else."""
    rows = given.to_dict("records") if hasattr(given, "iloc") else list(given) if isinstance(given, Iterable) else []
    if not rows or not all(isinstance(row, Mapping) for row in rows):
        raise UserError("rows of problems are a list of mappings, a pandas DataFrame, or one split of a data set")
    content = "".join(json.dumps(dict(row), default=str) + "\n" for row in rows).encode()
    file = made(folder) / f"rows-{hashlib.sha256(content).hexdigest()[:8]}.jsonl"
    write_whole(file, content)
    return str(file), len(rows)


def json_object(file: Path) -> dict[str, Any]:
    """The JSON object in a file. UserError with the file if it is something else; OSError without a file."""
    values = _parsed(file, json.loads)
    if not isinstance(values, dict):
        raise UserError(f"{file} holds no JSON object")
    return values


def toml_tables(file: Path) -> dict[str, Any]:
    """The content of a TOML file. UserError with the file if it cannot be read."""
    with explained(f"{file} cannot be read", OSError):
        return _parsed(file, lambda content: tomllib.loads(content.decode()))


def _parsed(file: Path, parse: Callable[[bytes], Any]) -> Any:
    with explained(f"{file} cannot be read", ValueError, RecursionError):
        return parse(read_whole(file))


def parquet_bytes(rows: Sequence[Mapping[str, Any]], file: Path) -> bytes:
    """The bytes of a parquet table for `file`. UserError with the file if pyarrow is missing or a value has no type."""
    arrow, parquet = _pyarrow(file)
    content = io.BytesIO()
    # A text may have half a surrogate pair, and a number more than 64 bits.
    with explained(f"{file} cannot be written", ValueError, OverflowError):
        parquet.write_table(arrow.Table.from_pylist(list(rows)), content)
    return content.getvalue()


def _read_parquet(file: Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    _, parquet = _pyarrow(file)
    left = EXPANDED + RATIO * file.stat().st_size
    try:
        with open_to_read(file) as content, parquet.ParquetFile(content) as table:
            wanted = {name.lower() for name in columns}
            known = [name for name in table.schema_arrow.names if name.lower() in wanted]
            # A column has more values than rows if it is nested, and a single row may have any number of them.
            groups = [table.metadata.row_group(i) for i in range(table.num_row_groups)]
            parts = [(group.column(i), group.num_rows) for group in groups for i in range(group.num_columns)]
            read = [(part.num_values, rows) for part, rows in parts if part.path_in_schema.split(".")[0] in known]
            if VALUE * sum(max(0, values - rows) for values, rows in read) > left:
                raise ValueError(f"its nested columns expand to more than {RATIO} times its size")
            for batch in table.iter_batches(columns=known, batch_size=64):  # a value may be repeated in every row
                if (left := left - batch.nbytes) < 0:
                    raise ValueError(f"it expands to more than {RATIO} times its size")
                yield from batch.to_pylist()
    except (ArithmeticError, LookupError, NotImplementedError, OSError, TypeError, ValueError) as error:
        raise UserError(f"{file} cannot be read as parquet: {type(error).__name__}: {error}") from error


def _read_csv(file: Path) -> Iterator[dict[str, Any]]:
    why = f"{file} cannot be read as CSV in UTF-8"
    with explained(why, ValueError, csv.Error), open_to_read(file) as content:
        yield from csv.DictReader(io.TextIOWrapper(content, encoding="utf-8-sig", newline=""))


def _read_json(file: Path) -> Iterator[Any]:
    with open_to_read(file) as lines:
        first = lines.read(len(codecs.BOM_UTF8))
        lines.seek(0 if first != codecs.BOM_UTF8 else len(first))
        number = 0
        for line in lines:
            if number == 0 and line.lstrip().startswith(b"["):
                yield from _json(line + lines.read(), str(file))
                return
            if line.strip():
                number += 1
                yield _json(line, f"{file}, row {number}")


def _json(text: bytes, place: str) -> Any:
    forms = "one object on each line, or one list of all"
    with explained(f"{place}: not JSON in UTF-8 ({forms})", ValueError, RecursionError):
        return json.loads(text.decode())


def _pyarrow(file: Path) -> tuple[Any, Any]:
    """pyarrow and its parquet module. UserError with the file if they are missing."""
    with needing("data", str(file)):
        import pyarrow
        from pyarrow import parquet
    return pyarrow, parquet
