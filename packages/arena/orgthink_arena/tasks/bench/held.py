"""Texts that are too large for the memory and for the record: they lie in a nameless temporary file of this process."""

from __future__ import annotations

import hashlib
import tempfile
import threading
from functools import cached_property
from typing import IO

from orgthink.util.errors import UserError


class HeldTexts:
    """Texts by their SHA-256."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[int, int]] = {}
        """Offset and length, by hash."""
        self._end = 0
        self._turn = threading.Lock()

    @cached_property
    def _file(self) -> IO[bytes]:
        return tempfile.TemporaryFile()

    def hold(self, text: str) -> str:
        """The hash by which the text is found again, in this process."""
        content = text.encode(errors="surrogatepass")
        name = hashlib.sha256(content).hexdigest()
        with self._turn:
            if name not in self._places:
                self._file.seek(self._end)
                self._file.write(content)
                self._file.flush()
                self._places[name] = self._end, len(content)
                self._end += len(content)
        return name

    def text(self, name: str) -> str:
        """The text. UserError if it was not held in this process."""
        if name not in self._places:
            raise UserError("the private tests of this problem are not here: read its rows first, from the same file")
        offset, length = self._places[name]
        parts = b""
        with self._turn:
            self._file.seek(offset)
            parts = self._file.read(length)
        return parts.decode(errors="surrogatepass")
