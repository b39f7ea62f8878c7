"""Responses of an episode: as a stream of events or at once, until the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from orgthink.record.episode import Episode
from orgthink.record.guard import engine_failed, failed_agents, failure_message, unanswered
from orgthink.serve.chat import ChatExchange
from orgthink.serve.question import RequestError
from orgthink.serve.responses import CANCELLED, ResponseExchange
from orgthink.util.redaction import unsplit

Exchange = ChatExchange | ResponseExchange
"""A request, and the forms of its response: `whole` at once; or events when it `begins`, when an agent `says` a text,
and when it `ends` or `fails`."""

QUIET = 10.0
"""Seconds without a text after which a stream sends a comment, so that proxies keep it open."""
WORKING = b": working\n\n"
"""That comment."""


async def events(
    exchange: Exchange, task: asyncio.Task[Episode], texts: asyncio.Queue[str | None]
) -> AsyncIterator[bytes]:
    """A streamed response: the lanes as they come, then the answer. `None` among the texts is their end.

    The beginning of a secret waits for the next text: a server may repeat its key in pieces.
    """
    waiting = ""
    for sent in exchange.begins():
        yield sent
    while True:
        try:
            text = await asyncio.wait_for(texts.get(), QUIET)
        except TimeoutError:
            yield WORKING
            continue
        if text is None:
            break
        while not texts.empty() and (more := texts.get_nowait()) is not None:
            text += more
        text, waiting = unsplit(waiting + text)
        for sent in exchange.says(text) if text else ():
            yield sent
        if task.done() and texts.empty():
            break
    for sent in exchange.says(waiting) if waiting else ():
        yield sent
    try:
        await asyncio.wait({task})
        if task.cancelled():
            raise RequestError("a client ended it", 499, code=CANCELLED)
        last = exchange.ends(spoken(task.result()))
    except RequestError as error:
        last = exchange.fails(error)
    for sent in last:
        yield sent


def spoken(episode: Episode) -> Episode:
    """The `answered` episode, with a text that says so in place of a missing answer."""
    found = answered(episode)
    return found if found.answer else replace(found, answer=f"[no answer: {unanswered(found)[0]}]")


def answered(episode: Episode) -> Episode:
    """The episode; RequestError if an engine failed or the prompt is too long for a model."""
    if not engine_failed(episode):
        return episode
    if {trace.exhausted and trace.exhausted.budget for trace in failed_agents(episode)} == {"context"}:
        raise RequestError(failure_message(episode), code="context_length_exceeded", param="messages")
    raise RequestError(failure_message(episode), 502, code="engine_failed")


class EpisodeStream(StreamingResponse):
    """A streamed response. Its end ends the episode, also if the client left before the first event."""

    def __init__(self, task: asyncio.Task[Episode], *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._task = task

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._task.cancel()


async def unless_gone(request: Request, task: asyncio.Task[Episode]) -> Episode:
    """The result of a task, which is cancelled if its client leaves."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    leaving = asyncio.create_task(gone())
    try:
        await asyncio.wait((task, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise RequestError("the client went away", 499)
        return task.result()
    finally:
        task.cancel()
        leaving.cancel()
        with suppress(asyncio.CancelledError):
            await leaving
