"""A server on loopback that answers as an OpenAI-compatible one does, or in one of many wrong ways, drawn at random."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

MODEL = "tiny"
LONGEST = 8.0
"""Seconds after which a way that never ends by itself ends: the client has gone long before, or has not noticed."""

EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
JSON = "HTTP/1.1 {} x\r\nContent-Type: application/json\r\nConnection: close\r\n{}Content-Length: {}\r\n\r\n{}"

Way = Callable[[asyncio.StreamWriter, list[str]], Awaitable[None]]
"""Answers one request in place of these words."""


def event(data: Any) -> bytes:
    return b"data: " + (data if isinstance(data, str) else json.dumps(data)).encode("utf-8", "surrogatepass") + b"\n\n"


def word(text: str, finish: Any = None) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]})


def reply(status: int, body: Any, headers: str = "") -> bytes:
    text = body if isinstance(body, str) else json.dumps(body)
    return JSON.format(status, headers, len(text.encode()), text).encode()


async def well(writer: asyncio.StreamWriter, words: list[str]) -> None:
    writer.write(EVENTS)
    for text in words:
        writer.write(word(text + " "))
        await writer.drain()
    writer.write(word("", "stop") + event("[DONE]"))


def sends(*parts: bytes) -> Way:
    """These bytes, whatever they are, and the end of the connection."""

    async def way(writer: asyncio.StreamWriter, words: list[str]) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()

    return way


def cuts(after: bytes) -> Way:
    """These bytes, and the connection breaks."""

    async def way(writer: asyncio.StreamWriter, words: list[str]) -> None:
        writer.write(after)
        await writer.drain()
        writer.transport.abort()

    return way


def repeats(first: bytes, part: bytes, pause: float = 0.0) -> Way:
    """A part again and again, until the client goes; an empty one is silence."""

    async def way(writer: asyncio.StreamWriter, words: list[str]) -> None:
        async with asyncio.timeout(LONGEST):
            writer.write(first)
            while True:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(pause)

    return way


async def drips(writer: asyncio.StreamWriter, words: list[str]) -> None:
    writer.write(EVENTS)
    for text in [*words, "hm"]:
        await asyncio.sleep(0.3)
        writer.write(word(text + " "))
        await writer.drain()
    writer.write(word("", "stop"))


def usage(tokens: Any) -> bytes:
    return event({"choices": [], "usage": {"completion_tokens": tokens}})


DEEP = "[" * 50_000
BOMB = gzip.compress(bytes(20 << 20))
NO = {"error": {"message": "no"}}

WAYS: dict[str, Way] = {
    "says nothing": repeats(b"", b"", 0.1),
    "says nothing after a word": repeats(EVENTS + word("hm"), b"", 0.1),
    "never ends": repeats(EVENTS, word("word "), 0.005),
    "comments without end": repeats(EVENTS, b": alive\n\n", 0.005),
    "headers without end": repeats(b"HTTP/1.1 200 OK\r\n", b"X-A: " + b"a" * 1000 + b"\r\n", 0.001),
    "a line without end": repeats(EVENTS + b"data: ", b"a" * 10_000, 0.005),
    "a refusal without end": repeats(b"HTTP/1.1 400 x\r\nConnection: close\r\n\r\n", b"a" * 10_000, 0.005),
    "drips": drips,
    "hangs up": cuts(b""),
    "hangs up in the headers": cuts(b"HTTP/1.1 200 OK\r\nContent-"),
    "hangs up after a word": cuts(EVENTS + word("so ")),
    "no finish": sends(EVENTS + word("so ")),
    "nothing but the end": sends(EVENTS + event("[DONE]")),
    "an empty answer": sends(EVENTS),
    "is no HTTP": sends(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "bytes": sends(bytes(range(256)) * 10),
    "429": sends(reply(429, NO, "Retry-After: 0\r\n")),
    "429 until tomorrow": sends(reply(429, NO, "Retry-After: 86400\r\n")),
    "429 with an odd delay": sends(reply(429, NO, "Retry-After: -1e400\r\n")),
    "500": sends(reply(500, "<html><title>Oops</title></html>")),
    "503 of deep JSON": sends(reply(503, DEEP)),
    "400": sends(reply(400, {"error": {"message": ["no", 7]}})),
    "404": sends(reply(404, NO)),
    "302": sends(reply(302, "", "Location: http://127.0.0.1:9/\r\n")),
    "204": sends(b"HTTP/1.1 204 x\r\nConnection: close\r\n\r\n"),
    "JSON in place of events": sends(reply(200, {"choices": [{"message": {"content": "3"}}]})),
    "too long a length": sends(reply(200, "{}").replace(b"Length: 2", b"Length: 999999")),
    "a bad chunk": sends(EVENTS.replace(b"Connection: close", b"Transfer-Encoding: chunked") + b"zz\r\nhm\r\n"),
    "gzip that is none": sends(EVENTS.replace(b"Connection", b"Content-Encoding: gzip\r\nConnection") + b"hm" * 100),
    "a gzip bomb": sends(EVENTS.replace(b"Connection", b"Content-Encoding: gzip\r\nConnection") + BOMB),
    "content is a list": sends(EVENTS + word(["a"])),  # type: ignore[arg-type]
    "content is a number": sends(EVENTS + word(7)),  # type: ignore[arg-type]
    "choices are an object": sends(EVENTS + event({"choices": {"a": 1}})),
    "an event that is null": sends(EVENTS + event("null")),
    "deep events": sends(EVENTS + event(DEEP)),
    "a finish that is a list": sends(EVENTS + word("so", ["stop"])),
    "an unknown finish": sends(EVENTS + word("so <ANSWER> 3 </ANSWER>", "because")),
    "text after the finish": sends(EVENTS + word("so", "stop") + word("more", "stop")),
    "usage of -500": sends(EVENTS + word("so", "stop") + usage(-500)),
    "usage of NaN": sends(EVENTS + word("so", "stop") + usage(float("nan"))),
    "usage of 1e400": sends(EVENTS + word("so", "stop") + usage(10**400)),
    "an error as an event": sends(EVENTS + word("so") + event(NO)),
    "bytes that are no UTF-8": sends(EVENTS + b'data: {"choices": [{"delta": {"content": "\xff\xfe"}}]}\n\n'),
    "half a surrogate pair": sends(EVENTS + word("so <ANSWER> \ud83d </ANSWER>", "stop")),
    "controls of a terminal": sends(EVENTS + word("\x1b[2J\x1b]0;x\x07\x00 <ANSWER> 3 </ANSWER>", "stop")),
    "tags without sense": sends(EVENTS + word("<FORK-1><FORK-1></JOIN-9><RETURN></ANSWER><ANSWER>", "stop")),
    "a word of a megabyte": sends(EVENTS + word("a" * (1 << 20), "stop")),
}


class Misbehaving:
    """The server, in a thread of its own. As a context manager it listens."""

    def __init__(self, seed: int) -> None:
        self.share = 0.3
        """Probability that an answer goes wrong."""
        self.played: Counter[str] = Counter()
        """How often each way was gone."""
        self.url = ""
        self._rng, self._loop = random.Random(seed), asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Misbehaving:
        self._thread.start()
        listening = asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 24)
        server = asyncio.run_coroutine_threadsafe(listening, self._loop).result()
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        return self

    def __exit__(self, *error: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _end(self) -> None:
        """End what is being answered."""
        answers = asyncio.all_tasks() - {asyncio.current_task()}
        for answer in answers:
            answer.cancel()
        await asyncio.gather(*answers, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = next((line[15:] for line in head.split("\r\n") if line.startswith("content-length:")), "0")
            body = json.loads(await reader.readexactly(int(length)) or b"{}")
            await self._answer(body, writer)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            pass
        finally:
            writer.close()

    async def _answer(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if not body:
            writer.write(reply(200, {"data": [{"id": MODEL}]}))
        elif not body.get("stream"):  # what a client asks to know the server
            choice = {"message": {"content": "x"}, "text": "x", "finish_reason": "length"}
            writer.write(reply(200, {"choices": [choice]}))
        else:
            wrong = self._rng.random() < self.share
            name = self._rng.choice(list(WAYS)) if wrong else "well"
            self.played[name] += 1
            await (WAYS[name] if wrong else well)(writer, _words(json.dumps(body)))


def _words(request: str) -> list[str]:
    """What a model says that organizes, works or thinks alone."""
    if "worker" in request:
        return ["so", "<RETURN>", "3", "</RETURN>"]
    if "organizer" in request and "</JOIN-1>" not in request:
        return ["<FORK-1>", "add", "</FORK-1>", "<JOIN-1>"]
    return ["so", "<ANSWER>", "1", "+", "2", "</ANSWER>"]
