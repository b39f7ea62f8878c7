"""uvicorn's HTTP/1.1, for clients that mean harm: deadlines for what arrives and for what is taken, bounds on
connections and on work before a key is asked for, and every error in OpenAI's form."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from orgthink.serve.question import RequestError

PATIENCE = 30.0
"""Seconds in which a request must arrive whole, and in which a client must take what it was sent."""
CONNECTIONS = 512
"""Most open connections; further ones are told to come back. Well under the files that a process may open."""
LEAVING = 128
"""Most of these further ones that may take their time to hear it."""
TURN = 1 << 16
"""Most bytes that a client's connection takes in a turn of the event loop."""
CHUNKS, CHUNK = 1000, 64
"""A body may have so many chunks, and one more for so many of its bytes: a small chunk takes as long as a large one."""
UNREAD = 128 << 20
"""Most bytes that are dropped unread, once a request was answered before its end, as refusals are."""


def server(app: Starlette) -> uvicorn.Server:
    """A server of the application."""
    plain = {
        "log_config": None,
        "ws": "none",
        "lifespan": "off",
        "proxy_headers": False,
        "server_header": False,
        "access_log": False,
    }
    return uvicorn.Server(uvicorn.Config(app, http=Connection, log_level="warning", **plain))  # type: ignore[arg-type]


class Connection(H11Protocol):
    """A client's connection."""

    _unread: int | None = None
    """Bytes that may still be dropped, once nothing more is said."""
    _arrival: asyncio.TimerHandle | None = None
    """Runs while a request is due, until its last byte."""
    _taking: asyncio.TimerHandle | None = None
    """Runs while the client has not taken all that it was sent."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.conn = _BoundedChunks(h11.SERVER)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.max_size = TURN  # which asyncio asks the system for
        transport.set_write_buffer_limits(0)  # so that writing pauses until the client has taken the last byte
        if len(self.connections) > CONNECTIONS:
            self._say(RequestError(f"{CONNECTIONS} connections are open: ask again later", 503, code="busy"))
            self._hang_up() if len(self.connections) <= CONNECTIONS + LEAVING else self.transport.close()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._arrival, self._taking):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._unread is not None:
            self._unread -= len(data)
            if self._unread < 0:
                self.transport.close()
            return
        # Further requests must wait: to keep them would stop reading, and hide that a client left.
        if self._answering():
            self.cycle.keep_alive = False
            return
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        early = self.conn.their_state is h11.SEND_BODY
        super().on_response_complete()
        if early:
            self._hang_up()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._taking = self.loop.call_later(PATIENCE, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._taking is not None:
            self._taking.cancel()

    def send_400_response(self, msg: str) -> None:
        self._say(RequestError("this is not an HTTP request, its head is too long, or its chunks are too small"))
        self._hang_up()

    def _answering(self) -> bool:
        """Whether a request has arrived whole, and its answer is not finished."""
        return self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete

    def _watch(self) -> None:
        """Let the clock run while a request is due, and only then."""
        due = self.conn.their_state in (h11.IDLE, h11.SEND_BODY) or self._unread is not None
        due = due and not self.transport.is_closing()
        if self._arrival is not None and not due:
            self._arrival.cancel()
            self._arrival = None
        elif self._arrival is None and due:
            self._arrival = self.loop.call_later(PATIENCE, self._late)

    def _late(self) -> None:
        self._arrival = None
        if self._unread is not None:
            self.transport.close()
            return
        self._say(RequestError(f"the request did not arrive within {PATIENCE:g} seconds", 408, code="late"))
        self._hang_up()
        self._watch()

    def _hang_up(self) -> None:
        """Say no more, and drop what still comes: who sends into a connection that ended may not hear the answer."""
        if self.transport.is_closing():
            return
        self._unread = UNREAD
        self.transport.write_eof()
        self.flow.resume_reading()
        if self.cycle is not None:  # as if the client had gone
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _say(self, error: RequestError) -> None:
        """Say why a request is refused, where no answer has begun."""
        if self._unread is None and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps(error.body).encode()
            head = f"HTTP/1.1 {error.status} \r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
            self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)


class _BoundedChunks(h11.Connection):
    """h11 with a bound on the chunks of a body."""

    _chunks = _bytes = 0

    def next_event(self) -> Any:
        """The next event; RemoteProtocolError for more chunks than a body of its size may have."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._bytes = 0
        elif isinstance(event, h11.Data):
            self._chunks += event.chunk_end
            self._bytes += len(event.data)
            if self._chunks > CHUNKS + self._bytes // CHUNK:
                raise h11.RemoteProtocolError("the chunks of the body are too small")
        return event
