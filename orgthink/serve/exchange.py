"""JSON and server-sent events of both interfaces, without secrets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Protocol

from orgthink.record.episode import Episode
from orgthink.record.guard import engine_failed, failed_agents, failure_message
from orgthink.serve.question import Question, RequestError
from orgthink.util.redaction import redact_json

QUIET = 10.0
"""Seconds without a text after which a stream sends a comment, so that proxies keep it open."""
_LINE_ENDS = {code: f"\\u{code:04x}" for code in (0x85, 0x2028, 0x2029)}
"""Ends of lines that JSON does not escape."""


class Exchange(Protocol):
    """A request, and the forms of its response."""

    @property
    def question(self) -> Question: ...

    @property
    def streams(self) -> bool:
        """Whether the client wants events."""
        ...

    def whole(self, episode: Episode, lanes: str) -> dict[str, Any]:
        """The response at once. `lanes` is the text of the agents."""
        ...

    def begins(self) -> Iterable[bytes]:
        """Events at the begin of a stream."""
        ...

    def says(self, text: str) -> Iterable[bytes]:
        """Events for the next text of the lanes."""
        ...

    def ends(self, episode: Episode) -> Iterable[bytes]:
        """Events for the answer and the end."""
        ...

    def fails(self, error: RequestError) -> Iterable[bytes]:
        """Events for an end without an answer."""
        ...


def encoded(value: Any) -> bytes:
    """JSON, without the secrets of this process. Half a surrogate pair, which UTF-8 cannot hold, becomes `?`. What
    some clients take for the end of a line is escaped, for it would cut an event."""
    return redact_json(json.dumps(value, ensure_ascii=False)).translate(_LINE_ENDS).encode(errors="replace")


def event(value: Mapping[str, Any]) -> bytes:
    """A server-sent event."""
    return b"data: %s\n\n" % encoded(value)


async def events(
    exchange: Exchange, task: asyncio.Task[Episode], texts: asyncio.Queue[str | None]
) -> AsyncIterator[bytes]:
    """A streamed response: the lanes as they come, then the answer. `None` among the texts is their end."""
    for sent in exchange.begins():
        yield sent
    while True:
        try:
            text = await asyncio.wait_for(texts.get(), QUIET)
        except TimeoutError:
            yield b": working\n\n"
            continue
        if text is None:
            break
        while not texts.empty() and (more := texts.get_nowait()) is not None:
            text += more
        for sent in exchange.says(text):
            yield sent
        if task.done() and texts.empty():
            break
    try:
        last = exchange.ends(answered(await task))
    except RequestError as error:
        last = exchange.fails(error)
    for sent in last:
        yield sent


def answered(episode: Episode) -> Episode:
    """The episode; RequestError if an engine failed or the prompt is too long for a model."""
    if not engine_failed(episode):
        return episode
    if {trace.exhausted and trace.exhausted.budget for trace in failed_agents(episode)} == {"context"}:
        raise RequestError(failure_message(episode), code="context_length_exceeded", param="messages")
    raise RequestError(failure_message(episode), 502, code="engine_failed")
