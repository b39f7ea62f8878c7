"""Responses in the background: they go on without their client, who fetches them later, also from the next server.

The events of a response are a file in the run folder, as they were sent: `responses/ID.sse`. A response is what the
last of them says, so nothing else is stored. One that neither ended nor runs here has failed with its server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from pydantic_core import from_json

from orgthink.record.episode import Episode
from orgthink.serve.question import RequestError, quoted
from orgthink.serve.responses import Json, numbered
from orgthink.serve.stream import WORKING
from orgthink.util.errors import UserError
from orgthink.util.files import LONGEST_LINE, made, open_to_append, read_whole
from orgthink.util.terminal import reason
from orgthink.util.threads import UNKNOWN, off_loop

LONGEST_NAME = 100
"""Characters of an id."""
_END = b"\n\n"
"""How an event ends."""
_DIED = {"code": "server_error", "message": "the server ended before this response did: send the request again"}


class History:
    """A response and its events."""

    def __init__(self, events: bytes = b"", *, running: bool = False) -> None:
        """`events` so far; an incomplete last one is left out."""
        self.events = [event + _END for event in events.split(_END)[:-1]]
        """Events by their sequence number."""
        self.running = running
        """Whether more will come."""
        self.changed = asyncio.Event()
        """Set, and replaced, when an event comes, when time passes without one, and at the end."""

    @property
    def response(self) -> Json:
        """The response as it stands: that of the last event at its end, and of the first one before."""
        found = (from_json(self.events[at].partition(b"data: ")[2]).get("response") for at in (-1, 0))
        return next(filter(None, found), {})

    def tell(self) -> None:
        """Wake the followers."""
        self.changed.set()
        self.changed = asyncio.Event()

    async def follow(self, after: int) -> AsyncIterator[bytes]:
        """The events behind a sequence number, also those that are still to come."""
        while True:
            running, changed = self.running, self.changed
            for event in self.events[after + 1 :] or [WORKING]:
                yield event
                after += event != WORKING
            if not running:
                return
            await changed.wait()


class Background:
    """The responses in a folder. Those that are running are in memory as well."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, tuple[History, asyncio.Task[Episode], asyncio.Task[None]]] = {}
        """Those that run, with the tasks of their episodes and of those that write their events."""

    async def begin(self, name: str, episode: asyncio.Task[Episode], events: AsyncIterator[bytes]) -> History:
        """Keep the events of an episode. Returns at the first one. RequestError if they cannot be stored."""
        history = History(running=True)
        self._running[name] = (history, episode, asyncio.create_task(self._write(name, history, events)))
        await history.changed.wait()
        if not history.events:
            raise RequestError("the server cannot store responses: its log says why", 500, code="not_stored")
        return history

    async def find(self, name: str) -> History:
        """The response of a name; RequestError without one."""
        if name in self._running:
            return self._running[name][0]
        file = self._folder / f"{name}.sse"
        possible = name.replace("_", "").isalnum() and len(name) < LONGEST_NAME
        if possible and file.is_file() and (history := await off_loop(UNKNOWN, _read, file)).events:
            return history
        text = f"there is no response {quoted(name)}: only those with background: true are stored"
        raise RequestError(text, 404, code="response_not_found")

    async def cancel(self, name: str) -> History:
        """The response of a name, after its end. RequestError without one."""
        history = await self.find(name)
        if name in self._running:
            _, episode, writer = self._running[name]
            episode.cancel()
            await asyncio.wait({writer})
        return history

    async def drain(self) -> None:
        """Wait for the responses that are running."""
        await asyncio.gather(*(writer for _, _, writer in self._running.values()), return_exceptions=True)

    async def _write(self, name: str, history: History, events: AsyncIterator[bytes]) -> None:
        try:
            with open_to_append(made(self._folder) / f"{name}.sse") as file:
                async for event in events:
                    if event != WORKING:
                        await off_loop(UNKNOWN, file.write, event)
                        history.events.append(event)
                    history.tell()
        except (OSError, UserError) as error:  # such as a full disk, or a folder that was moved
            logging.getLogger(__name__).error("response %s is not stored: %s", name, reason(error))
            self._running[name][1].cancel()
        finally:
            del self._running[name]
            history.running = False
            history.tell()


def _read(file: Path) -> History:
    """A response that does not run here. One that has no end has failed; a damaged file has no events."""
    history = History(read_whole(file, LONGEST_LINE))
    with suppress(AttributeError, LookupError, TypeError, ValueError):  # any JSON, or none
        if history.response["status"] == "in_progress":
            response = history.response | {"status": "failed", "error": _DIED}
            history.events.append(numbered("response.failed", len(history.events), response=response))
        return history
    return History()
