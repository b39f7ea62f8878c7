"""The connections of a server: no more than the process may have. Further ones are answered with the status 503."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress

import uvicorn

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
