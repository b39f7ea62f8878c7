"""Stores answers of servers on disk, for requests with temperature 0 or with a seed.

The key of an answer is everything that determines it: the server, the request and the stop texts. Only complete answers
are stored. The server is asked again if a file is damaged.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from orgthink.engines.engine import Chunk
from orgthink.record.episode import Billed, Sampling
from orgthink.util.errors import UserError
from orgthink.util.files import read_whole, write_whole
from orgthink.util.redaction import redact

log = logging.getLogger(__name__)

FREE = Billed(0, 0, 0, 0)
"""Cost of a stored answer."""

_ANSWER = TypeAdapter(list[Chunk])


class AnswerCache:
    """A folder of answers, which several processes may share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def through(
        self, fresh: AsyncGenerator[Chunk], request: Sequence[Any], sampling: Sampling
    ) -> AsyncGenerator[Chunk]:
        """The stored answer to a request, given as JSON values, or else the fresh one, which is then stored.

        It is stored before its last chunk is passed on, because the reader may stop there.
        """
        repeats = sampling.temperature == 0 or sampling.seed is not None
        file = self.file(request) if repeats else None
        stored = None if file is None else await asyncio.to_thread(_load, file)
        for chunk in stored or ():
            yield chunk
        if stored is None:
            chunks: list[Chunk] = []
            async with aclosing(fresh):
                async for chunk in fresh:
                    chunks.append(chunk)
                    if chunk.finish is not None and file is not None:
                        _store(file, chunks)
                    yield chunk

    def file(self, request: Sequence[Any]) -> Path:
        """The file of the answer to a request."""
        name = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
        return self._folder / name[:2] / f"{name}.json"


def _load(file: Path) -> list[Chunk] | None:
    """The answer in a file; `None` without one."""
    try:
        chunks = _ANSWER.validate_json(read_whole(file))
        if not chunks or [chunk.finish is None for chunk in chunks] != [True] * (len(chunks) - 1) + [False]:
            raise ValueError("it has no end")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, UserError) as error:
        log.warning("%s holds no answer (%s); the server is asked again", file, type(error).__name__)
        return None
    return [*chunks[:-1], replace(chunks[-1], billed=FREE)]


def _store(file: Path, chunks: list[Chunk]) -> None:
    """Store a whole answer, unless it repeats a secret or the folder cannot be written."""
    text = "".join("".join(chunk.pieces) + chunk.reasoning for chunk in chunks)
    if redact(text) != text:
        return
    try:
        content = _ANSWER.dump_json(chunks, exclude_defaults=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, content)
    except (OSError, ValueError) as error:
        log.warning("an answer is not stored at %s: %s", file, error)
