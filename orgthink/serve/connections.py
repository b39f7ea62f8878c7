"""The connections of a server: no more than the process may have, and each stays open until its client has the answer.

Further connections are answered with the status 503.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress

import uvicorn
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orgthink.serve.question import RequestError
from orgthink.util.files import descriptors

CONNECTIONS = 512
"""Most open connections, or a quarter of the files that the process may open: episodes need the others."""

LINGER = 0.25
"""Most seconds for a refused client to read the answer. Its request is read meanwhile, or the answer would be lost."""

_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Length: 127\r\n\r\n"
    b'{"error": {"message": "too many connections are open: ask again later", "type": "server_error", "param": null, '
    b'"code": "busy"}}'
)


MOST_UNREAD = 1 << 26
"""Most bytes of a request that are read after its answer."""

_TWO_LENGTHS = JSONResponse(  # a proxy may take the end of the body for the next request
    RequestError("send either Content-Length or Transfer-Encoding").body, 400, headers={"connection": "close"}
)


class BoundedServer(uvicorn.Server):
    """Accepts few connections at once. uvicorn would accept all that the system has."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        (place,), turn = sockets or [], asyncio.Lock()
        # Others wait in the system's queue.
        self._accepting = [asyncio.create_task(self._accept(place, turn)) for _ in range(min(32, descriptors() // 8))]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._accepting:
            task.cancel()
        await super().shutdown(sockets)

    async def _accept(self, place: socket.socket, turn: asyncio.Lock) -> None:
        loop, most = asyncio.get_running_loop(), min(CONNECTIONS, descriptors() // 4)
        place.setblocking(False)
        while True:
            try:
                async with turn:
                    connection, _ = await loop.sock_accept(place)
                if len(self.server_state.connections) < most:
                    await loop.connect_accepted_socket(
                        lambda: self.config.http_protocol_class(
                            config=self.config,  # type: ignore[call-arg]
                            server_state=self.server_state,  # type: ignore[call-arg]
                            app_state=self.lifespan.state,  # type: ignore[call-arg]
                        ),
                        connection,
                    )
                else:
                    await _refuse(connection)
            except OSError as error:  # such as no file left
                logging.getLogger(__name__).warning("a connection is not accepted: %s", error)
                await asyncio.sleep(LINGER)


async def _refuse(connection: socket.socket) -> None:
    with connection, suppress(OSError):
        async with asyncio.timeout(LINGER):
            await asyncio.get_running_loop().sock_sendall(connection, _BUSY)
            while await asyncio.get_running_loop().sock_recv(connection, 1 << 16):
                pass


class WholeRequests:
    """An application whose early answers arrive: to close a connection with unread bytes resets it, and the answer is
    lost on its way."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        unread = True

        async def read() -> Message:
            nonlocal unread
            message = await receive()
            unread = message.get("more_body", False)
            return message

        async def answer(message: Message) -> None:
            if message["type"] != "http.response.body" or message.get("more_body", False) or not unread:
                return await send(message)
            await send({**message, "more_body": True})
            left = MOST_UNREAD
            while unread and left > 0:
                left -= len((await read()).get("body", b""))
            await send({"type": "http.response.body"})

        ambiguous = all(name in Headers(scope=scope) for name in ("content-length", "transfer-encoding"))
        await (_TWO_LENGTHS if ambiguous else self._app)(scope, read, answer)
