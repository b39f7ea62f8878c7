"""Files of lines that grow while a run goes on: whoever wrote the last one may have been killed before its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from orgthink.util.errors import UserError
from orgthink.util.files import open_to_read

LONGEST_LINE = 1 << 30
"""Longest line that is read, in bytes: a million sampled tokens take 40 MB."""


def whole_lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers, from 1; not an incomplete last one, whose writer was killed.

    A missing file has none. UserError for a line above `LONGEST_LINE`.
    """
    try:
        stream = open_to_read(file)
    except FileNotFoundError:
        return
    with stream:
        number = 0
        while (raw := stream.readline(LONGEST_LINE + 1)).endswith(b"\n"):
            yield (number := number + 1), raw
        if len(raw) > LONGEST_LINE:
            raise UserError(f"{file}, line {number + 1}: longer than {LONGEST_LINE >> 20} MiB")


def cut_torn_line(file: BinaryIO) -> None:
    """Remove an incomplete last line, whose writer was killed: what is appended to it could not be read."""
    file.truncate(sum(len(raw) for _, raw in whole_lines(Path(file.name))))
