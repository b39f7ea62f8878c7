"""Answers of a server, byte by byte."""

from __future__ import annotations

import asyncio
import json

from loopback import Exchange, Play

OK = b"HTTP/1.1 200 OK\r\n"
EVENTS = OK + b"Content-Type: text/event-stream\r\n\r\n"
"""The head of a stream that ends with the connection."""


def data(**choice: object) -> bytes:
    """An event of a chat, with one choice."""
    return f"data: {json.dumps({'choices': [choice]})}\n\n".encode()


def word(text: str) -> bytes:
    return data(delta={"content": text})


END = data(delta={}, finish_reason="stop")


def sends_bytes(*parts: bytes) -> Play:
    """These bytes; then the connection stays open."""
    return endless(b"".join(parts), b"")


def endless(head: bytes, part: bytes, every: float = 0.0) -> Play:
    """The head, then the same part again and again, one `every` so many seconds, until the client goes."""

    async def play(exchange: Exchange) -> None:
        await exchange.raw(head)
        while part and not exchange.gone.is_set():
            await exchange.raw(part)
            exchange.sent += 1
            await asyncio.sleep(every)
        await exchange.gone.wait()

    return play
