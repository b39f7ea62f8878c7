"""Requests as a whole: their length has one meaning, and the rest of one is read after its answer."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orgthink.serve.question import RequestError

MOST_UNREAD = 1 << 26
"""Most bytes of a request that are read after its answer."""
SECONDS = 10.0
"""Most seconds for them."""

_TWO_LENGTHS = JSONResponse(  # a proxy may take the end of the body for the next request
    RequestError("send either Content-Length or Transfer-Encoding").body, 400, headers={"connection": "close"}
)


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
            more = message["type"] != "http.response.body" or message.get("more_body", False)
            if more or not unread:
                await send(message)
                return
            await send({**message, "more_body": True})
            left = MOST_UNREAD
            with suppress(TimeoutError):
                async with asyncio.timeout(SECONDS):
                    while unread and left > 0:
                        left -= len((await read()).get("body", b""))
            await send({"type": "http.response.body"})

        headers = Headers(scope=scope)
        ambiguous = "content-length" in headers and "transfer-encoding" in headers
        await (_TWO_LENGTHS if ambiguous else self._app)(scope, read, answer)
