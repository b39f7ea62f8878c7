"""A small HTTP server on loopback that plays an OpenAI-compatible one, well or badly behaved."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

MODEL = "tiny"

Play = Callable[["Exchange"], Awaitable[None]]
"""What the server does with one request."""


class Exchange:
    """A request, and the means to answer it."""

    def __init__(self, body: dict[str, Any], headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        self.body, self.headers, self._writer = body, headers, writer
        self.sent = 0
        """Events written."""
        self.gone = asyncio.Event()
        """Set once the client has closed the connection."""

    @property
    def shown(self) -> str:
        """The last message, or the prompt."""
        return str(self.body["messages"][-1]["content"] if "messages" in self.body else self.body["prompt"])

    async def reply(self, status: int, body: Any, **headers: str) -> None:
        text = body if isinstance(body, str) else json.dumps(body)
        fields = {"Content-Type": "application/json", "Content-Length": str(len(text.encode())), **headers}
        lines = [f"HTTP/1.1 {status} x", *(f"{k.replace('_', '-')}: {v}" for k, v in fields.items()), "", text]
        self._writer.write("\r\n".join(lines).encode())
        await self._writer.drain()

    async def raw(self, *parts: bytes) -> None:
        """These bytes, whatever they are."""
        for part in parts:
            self._writer.write(part)
            await self._writer.drain()

    async def begin(self) -> None:
        self._writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        await self._writer.drain()

    async def event(self, data: Any) -> None:
        text = f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()
        self._writer.write(f"{len(text):x}\r\n".encode() + text + b"\r\n")
        self.sent += 1
        await self._writer.drain()

    async def say(self, text: str, finish: str | None = None) -> None:
        """One event of the chat or the completion that was asked for."""
        choice = {"index": 0, "finish_reason": finish}
        choice |= {"delta": {"content": text}} if "messages" in self.body else {"text": text}
        await self.event({"choices": [choice]})

    async def end(self) -> None:
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()

    def cut(self) -> None:
        self._writer.transport.abort()


def says(text: str, *, finish: str | None = "stop", usage: int | None = None) -> Play:
    """A proper answer, a word an event. Without a finish: half an answer, properly closed."""

    async def play(exchange: Exchange) -> None:
        await exchange.begin()
        for word in text.split(" "):
            await exchange.say(word + " ")
        if finish is not None:
            await exchange.say("", finish)
            if usage is not None:
                await exchange.event({"choices": [], "usage": {"completion_tokens": usage}})
            await exchange.event("[DONE]")
        await exchange.end()

    return play


def dies(text: str) -> Play:
    """The connection breaks in the middle."""

    async def play(exchange: Exchange) -> None:
        await exchange.begin()
        for word in text.split(" "):
            await exchange.say(word + " ")
        exchange.cut()

    return play


def hangs(text: str = "") -> Play:
    """After the text, nothing more, for ever."""

    async def play(exchange: Exchange) -> None:
        await exchange.begin()
        for word in text.split():
            await exchange.say(word + " ")
        await exchange.gone.wait()

    return play


def babbles(word: str = "word ") -> Play:
    """Never ends by itself."""

    async def play(exchange: Exchange) -> None:
        await exchange.begin()
        while not exchange.gone.is_set():
            await exchange.say(word)
            await asyncio.sleep(0.002)

    return play


def answers(status: int, message: str = "no", **headers: str) -> Play:
    async def play(exchange: Exchange) -> None:
        await exchange.reply(status, {"error": {"message": message}}, **headers)

    return play


def sends(*data: str) -> Play:
    """These events, whatever they are."""

    async def play(exchange: Exchange) -> None:
        await exchange.begin()
        for item in data:
            await exchange.event(item)
        await exchange.end()

    return play


class Server:
    """Plays `plays` in the order of the requests; each may be bound to text in the last message or the prompt."""

    def __init__(self, plays: list[Play | tuple[str, Play]]) -> None:
        self.plays = [play if isinstance(play, tuple) else ("", play) for play in plays]
        self.exchanges: list[Exchange] = []
        """Of streams, in the order they began."""
        self.connections: set[asyncio.Task[None] | None] = set()
        self.url = ""
        self.key: str | None = None
        """The only key it accepts."""
        self.listing: Play | None = None
        """What it does when it is asked for its models."""
        self.probing: Play | None = None
        """What it does when it is asked for an answer without streaming."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.add(asyncio.current_task())
        try:
            while (head := await reader.readuntil(b"\r\n\r\n")) and await self._handle(head.decode(), reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _handle(self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; false once the connection is of no further use."""
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))) or "{}")
        exchange = Exchange(body, headers, writer)
        if self.key is not None and headers.get("authorization") != f"Bearer {self.key}":
            await exchange.reply(401, {"error": {"message": f"bad key: {headers.get('authorization')}"}})
        elif first.startswith("GET") and self.listing is not None:
            await self.listing(exchange)
        elif first.startswith("GET"):
            await exchange.reply(200, {"data": [{"id": MODEL}]})
        elif not body.get("stream") and self.probing is not None:
            await self.probing(exchange)
        elif not body.get("stream"):
            choice = {"text": "x", "message": {"content": "x"}, "finish_reason": "length", "token_ids": [1]}
            await exchange.reply(200, {"choices": [choice]})
        else:
            self.exchanges.append(exchange)
            return await self._play(exchange, reader)
        return True

    async def _play(self, exchange: Exchange, reader: asyncio.StreamReader) -> bool:
        """Play while watching for the client to go."""
        fit = next(i for i, (when, _) in enumerate(self.plays) if when in exchange.shown)
        play = asyncio.ensure_future(self.plays.pop(fit)[1](exchange))
        while not play.done() and not (reader.at_eof() or reader.exception()):
            await asyncio.wait({play}, timeout=0.005)
        if play.done() and not isinstance(play.exception(), ConnectionError):
            play.result()
            return True
        exchange.gone.set()
        await asyncio.wait({play}, timeout=0.2)
        play.cancel()
        return False


@asynccontextmanager
async def loopback(*plays: Play | tuple[str, Play], port: int = 0) -> AsyncIterator[Server]:
    """A server that listens while it is open, at a free port unless one is given."""
    server = Server(list(plays))
    listening = await asyncio.start_server(server.serve, "127.0.0.1", port)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    try:
        yield server
    finally:
        listening.close()
        if server.connections:  # the client closes them; a moment, for the server to see it
            await asyncio.wait(server.connections, timeout=0.3)
