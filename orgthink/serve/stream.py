"""Responses of an episode, at once or as a stream until the client leaves, and the reasoning that they show."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from orgthink.record.episode import Episode, StopReason
from orgthink.record.guard import cut_off, engine_failed, failed_agents, failure_message, unanswered
from orgthink.runtime.agent import Agent
from orgthink.serve.chat import ChatExchange
from orgthink.serve.question import RequestError
from orgthink.serve.responses import CANCELLED, ResponseExchange
from orgthink.util.redaction import unsplit
from orgthink.util.threads import UNKNOWN, off_loop

Exchange = ChatExchange | ResponseExchange
"""A request, and the forms of its response: `whole` at once; or events when it `begins`, when an agent `says` a text,
and when it `ends` or `fails`."""

QUIET = 10.0
"""Seconds without a text after which a stream sends a comment, so that proxies keep it open."""
WORKING = b": working\n\n"
"""That comment."""

_EVENTS = {"fork": "forks", "join": "joins", "end": "ends:"}


async def events(
    exchange: Exchange, task: asyncio.Task[Episode], texts: asyncio.Queue[str | None]
) -> AsyncIterator[bytes]:
    """A streamed response: the lanes as they come, then the answer. `None` among the texts is their end.

    The beginning of a secret waits for the next text: a server may repeat its key in pieces.
    """
    waiting = ""
    for sent in await off_loop(UNKNOWN, list, exchange.begins()):
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
    for sent in await off_loop(UNKNOWN, list, last):
        yield sent


def spoken(episode: Episode) -> Episode:
    """The `answered` episode. If a limit cut the answer off, a text says so in its place, and the stop is LENGTH.
    RequestError without an answer for another reason: a client must not take that for success, nor repeat it unasked.
    """
    found = answered(episode)
    if found.answer:
        return found
    why = f"no answer: {unanswered(found)[0]}"
    if cut_off(found):
        return replace(found, answer=f"[{why}]", stop=StopReason.LENGTH)
    raise RequestError(why, 502, code="no_answer", headers={"x-should-retry": "false"})  # OpenAI's clients would repeat


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


class Lanes:
    """A watcher of an episode, which merges the texts of all agents into one: the reasoning that a client sees.

    One agent streams until its line ends; the lines of the others wait until they are complete. A change of agent is
    marked by its name.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        """`say` gets the next text of the reasoning, never an empty one."""
        self._say = say
        self._speaker: str | None = None
        """Agent whose line is open."""
        self._named: str | None = None
        """Agent named last."""
        self._waiting: dict[str, list[str]] = {}
        """Parts of incomplete lines of other agents."""
        self._empty = True
        """Whether no text was sent yet."""

    def watch(self, kind: str, agent: Agent, text: str) -> None:
        if kind == "text":
            self._text(agent.id, text)
        elif kind in _EVENTS:
            if rest := self._taken(agent.id):
                self._lines(agent.id, rest)
            self._line(f"[{agent.id} {_EVENTS[kind]} {text}]")

    def _text(self, name: str, text: str) -> None:
        if self._speaker not in (None, name):
            whole, newline, rest = text.rpartition("\n")
            if newline:
                self._lines(name, self._taken(name) + whole)
            self._waiting.setdefault(name, []).append(rest)
            return
        self._open(name)
        self._emit(self._taken(name) + text)
        self._speaker = None if text.endswith("\n") else name

    def _taken(self, name: str) -> str:
        """Remove and return the waiting text of an agent."""
        return "".join(self._waiting.pop(name, ()))

    def _open(self, name: str) -> None:
        """Start a line of an agent."""
        if self._named != name:
            self._emit(("" if self._empty else "\n") + f"[{name}] ")
        self._named = self._speaker = name

    def _lines(self, name: str, text: str) -> None:
        """Complete lines of another agent, on lines of their own."""
        if text.strip():
            self._line(f"[{name}] {text.strip()}")

    def _line(self, text: str) -> None:
        self._emit(("" if self._empty else "\n") + text)
        self._speaker = self._named = None

    def _emit(self, text: str) -> None:
        if text:
            self._empty = False
            self._say(text)
