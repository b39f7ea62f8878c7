"""Answers of servers on disk, for requests that are meant to have one answer: with temperature 0, or with a seed.

An answer is found by everything that determines it: the server, who asks it, the request and the stop texts. It is
stored when it is whole; a file that is damaged, or that somebody else wrote, is no answer, and the server is asked
again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from orgthink.engines.engine import Chunk, FinishReason
from orgthink.engines.fewest import Fewest
from orgthink.engines.schema import Count, Sent
from orgthink.engines.wire import LONGEST_TOKEN
from orgthink.grammar.toolcall import TAGS, ToolCall, read_call
from orgthink.record.episode import Billed, Sampling, is_logprob
from orgthink.util.errors import UserError
from orgthink.util.files import read_whole, write_whole
from orgthink.util.redaction import redact
from orgthink.util.terminal import reason

log = logging.getLogger(__name__)

NOTHING = Billed(0, 0, 0, 0)
"""What a stored answer costs."""

SPARE, EACH = 1 << 16, 256
"""Bytes of a file, and for each token that was asked for: a token of today takes a third of that."""


_CALL = re.compile(f"{re.escape(TAGS.call[0])}(.*?){re.escape(TAGS.call[1])}", re.DOTALL)
"""A call. Searched for only up to the last closing tag: from each tag that is never closed it would read to the end."""


class StoredChunk(Sent):
    """What is stored of a chunk: nothing of the policy or the bill."""

    pieces: Annotated[tuple[str, ...], Field(fail_fast=True)]
    token_ids: Annotated[tuple[Count, ...], Field(fail_fast=True)] | None = None
    logprobs: Annotated[tuple[float, ...], Field(fail_fast=True)] | None = None
    finish: FinishReason | None = None
    tokens: Count | None = None
    reasoning: str = ""


class AnswerCache:
    """A folder of answers, which several processes may share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def through(
        self, fresh: AsyncGenerator[Chunk], request: Sequence[Any], sampling: Sampling
    ) -> AsyncGenerator[Chunk]:
        """The stored answer to a request, or else the fresh one, which is stored if the request has one answer.

        It is stored before its last chunk is handed over: whoever reads it may leave there.
        """
        place = self.place(request) if sampling.temperature == 0 or sampling.seed is not None else None
        # In a thread: a disk may be slow, and a file large.
        stored = None if place is None else await asyncio.to_thread(self.find, place, sampling.max_tokens)
        for chunk in stored or ():
            yield chunk
        if stored is None:
            chunks: list[Chunk] = []
            async with aclosing(fresh):
                async for chunk in fresh:
                    chunks.append(chunk)
                    if chunk.finish is not None and place is not None:
                        self.store(place, chunks)
                    yield chunk

    def place(self, request: Sequence[Any]) -> Path:
        """The file of the answer to a request, given as JSON values."""
        name = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
        return self._folder / name[:2] / f"{name}.json"

    def find(self, place: Path, most: int) -> list[Chunk] | None:
        """The answer that was stored there, of so many tokens at most; `None` without one."""
        try:
            chunks = _read(read_whole(place, SPARE + EACH * most), most)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, UserError) as error:
            log.warning("%s holds no answer, the server is asked again: %s", place, reason(error))
            return None
        return [*chunks[:-1], replace(chunks[-1], billed=NOTHING)]

    def store(self, place: Path, chunks: list[Chunk]) -> None:
        """Store a whole answer, if JSON can hold it and the folder can be written; none that says a secret, which could
        be cut into pieces that nobody recognises."""
        whole = "".join(piece for chunk in chunks for piece in chunk.pieces)
        whole += "".join(chunk.reasoning for chunk in chunks)
        if redact(whole) != whole:
            return
        try:
            parts = [StoredChunk.model_validate(chunk, from_attributes=True) for chunk in chunks]
            text = _adapter(len(parts)).dump_json(parts, exclude_defaults=True)
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.parent.is_symlink():
                raise OSError(f"{place.parent} is a link: answers are written into the folder only")
            write_whole(place, text)
        except (OSError, ValueError) as error:
            log.warning("an answer is not stored at %s: %s", place, error)


@lru_cache(maxsize=64)
def _adapter(most: int) -> TypeAdapter[list[StoredChunk]]:
    """Of so many chunks at most."""
    return TypeAdapter(Annotated[list[StoredChunk], Field(fail_fast=True, max_length=most)])


def _read(content: bytes, most: int) -> list[Chunk]:
    """The chunks of an answer of so many tokens at most; ValueError if it is none, which quotes nothing of it."""
    try:
        parts = _adapter(most + 1).validate_json(content)  # each but the last has a token
    except ValidationError as error:
        kind = error.errors(include_input=False, include_url=False)[0]["type"]
        raise ValueError(f"it is no list of the parts of an answer ({kind})") from None
    chunks = [Chunk(**dict(part)) for part in parts]
    _require_whole(chunks, most)
    return chunks


def least_sent(text: str) -> str:
    """What a server sends of an answer at least."""
    end = text.rfind(TAGS.call[1]) + len(TAGS.call[1]) if TAGS.call[1] in text else 0
    return _CALL.sub(_as_sent, text[:end]) + text[end:]


def _as_sent(call: re.Match[str]) -> str:
    """What a server sends of a call at least: its tags, and the spaces of its JSON, are ours."""
    read = read_call(call[1])
    if not isinstance(read, ToolCall):
        return call[1]
    return read.name + json.dumps(read.arguments, ensure_ascii=False, separators=(",", ":"))


def _require_whole(chunks: list[Chunk], most: int) -> None:
    """ValueError unless these are the chunks of one answer of so many tokens at most."""
    *others, last = chunks or [Chunk(())]
    if last.finish is None or any(chunk.finish is not None or chunk.tokens is not None for chunk in others):
        raise ValueError("an answer has one end, and is counted there")
    pieces, fewest = sum(len(chunk.pieces) for chunk in chunks), Fewest()
    if pieces > most:
        raise ValueError(f"an answer has {most} tokens at most")
    fewest.add("".join(chunk.reasoning for chunk in chunks))
    fewest.add(least_sent("".join(chain.from_iterable(chunk.pieces for chunk in chunks))))
    if pieces < min(fewest.tokens, most):  # each counts as one
        raise ValueError(f"an answer of {pieces} tokens does not say so much")
    if sum(sum(map(len, chunk.pieces)) + len(chunk.reasoning) for chunk in chunks) > LONGEST_TOKEN * (most + 1):
        raise ValueError(f"an answer of {most} tokens has no such length")
    for chunk in chunks:
        if not all(map(is_logprob, chunk.logprobs or ())):
            raise ValueError("a log-probability is not one")
        if any(values is not None and len(values) != len(chunk.pieces) for values in (chunk.token_ids, chunk.logprobs)):
            raise ValueError("each piece has an id and a log-probability, or none has")
