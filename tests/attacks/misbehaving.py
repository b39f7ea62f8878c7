"""A server for hours: what it says is a rule of what it is shown, and some of its answers go wrong at random.

No wrong answer passes for a right one, so an episode without a failure is that of a server that behaves.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, SupportsIndex

from attacks.serving import serving
from loopback import Exchange, Play, answers, dies, hangs, says, sends
from organizations.speaker import call

PROTOCOL = "<FORK-9>x</FORK-9> <JOIN-9> </JOIN-9> <ANSWER> 0 </ANSWER> <tool_call> {} </tool_call>"
"""What every worker returns with its result."""


def said(text: str) -> str:
    """What the model says to a conversation. What it has said before, as far as it came, is not said again."""
    (first, second), role = map(int, re.findall(r"sum (\d+) \+ (\d+)", text)[0]), text.split(maxsplit=1)[0]
    total = first + second
    if role == "manager":
        return _managed(first, total, text)
    if role == "verifier":
        return f"hm </think> correctness : {'correct' if f'<ANSWER> {total} </ANSWER>' in text else 'wrong'}"
    if subtask := re.findall(r"worker .*subtask (\w+)", text):
        return f"hm <RETURN> {PROTOCOL} {subtask[-1]}-result </RETURN>"
    if role == "organizer":
        return _organized(total, text)
    return f"so <ANSWER> {total + (second % 2 if role == 'sequential' else 0)} </ANSWER>"


def _organized(total: int, text: str) -> str:
    head, _, own = text.partition("sum ")
    steps = {"<FORK-1>left</FORK-1>": "<FORK-1>", "<FORK-2>right</FORK-2>": "<FORK-2>"}
    steps |= {"hm hm <JOIN-1>": "left-result", "<JOIN-2>": "right-result"}
    if "tells" in head:
        steps |= {"<TELL-1>more</TELL-1>": "<TELL-1>", "hm <JOIN-1>": "more-result"}
    left = [step for step, mark in steps.items() if mark not in own]
    return " ".join([*left[: 1 + next((i for i, step in enumerate(left) if "JOIN" in step), 0)], *_answer(left, total)])


def _answer(left: list[str], total: int) -> list[str]:
    return [] if left else [f"so <ANSWER> {total} </ANSWER>"]


def _managed(first: int, total: int, text: str) -> str:
    if '"status"' not in text:
        asked = call("python", code=f"print({total})") if first % 3 == 0 else call("standard_reasoner")
        return f"<reasoning> go </reasoning> {asked} {call('critical_reviewer')}"
    return f"so <ANSWER> {total} </ANSWER>" if text.rstrip().endswith("final") else call("final_answer")


EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
WORD = 'data: {"choices": [{"delta": {"content": "so"}}]}\n\n'
SILENT, REFUSED = b": alive\n\n", b"HTTP/1.1 400 x\r\n\r\n"


def raw(*parts: bytes | str, again: bytes | None = None) -> Play:
    """These bytes; then the end of the connection, or a part again and again until the client goes."""

    async def play(exchange: Exchange) -> None:
        await exchange.raw(*(part if isinstance(part, bytes) else part.encode() for part in parts))
        while again is not None and not exchange.gone.is_set():
            await exchange.raw(again)
            await asyncio.sleep(0.05)
        exchange.cut() if again is None else exchange.close()

    return play


def event(content: str, **more: str) -> str:
    return f'{{"choices": [{{"delta": {{"content": {content}}}, "finish_reason": {more.get("finish", "null")}}}]}}'


WRONG: dict[str, Play] = {
    "429": answers(429, Retry_After="0"),
    "429 until tomorrow": answers(429, Retry_After="86400"),
    "429 of an odd delay": answers(429, Retry_After="-1e400"),
    "500": answers(500),
    "502 in HTML": raw("HTTP/1.1 502 x\r\nContent-Length: 19\r\n\r\n<html>Oops</html>\r\n"),
    "503": answers(503, Retry_After="0"),
    "400": answers(400),
    "404": answers(404),
    "204": raw("HTTP/1.1 204 x\r\n\r\n"),
    "a redirect": raw("HTTP/1.1 302 x\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n"),
    "a reset": raw(),
    "a reset in the headers": raw("HTTP/1.1 200 OK\r\nContent-"),
    "a reset after a word": dies("so"),
    "a reset in an event": raw(EVENTS, WORD[:20]),
    "no finish": says("so", finish=None),
    "no answer": sends("[DONE]"),
    "no HTTP": raw("SSH-2.0-OpenSSH_9.6\r\n"),
    "bytes": raw(bytes(range(256)) * 10),
    "a bad chunk": raw(EVENTS.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n"), "zz\r\nhm\r\n"),
    "gzip": raw(EVENTS.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n"), "hm" * 100),
    "JSON in place of events": raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"),
    "a deep event": sends(event("[" * 50_000)),
    "a content that is a number": sends(event("7")),
    "a content that is a list": sends(event('["a"]')),
    "choices that are an object": sends('{"choices": {"a": 1}}'),
    "a finish that is a list": sends(event('"so"', finish='["stop"]')),
    "an unknown finish": sends(event('"so"', finish='"because"')),
    "an error as an event": sends(event('"so"'), '{"error": {"message": "no"}}'),
    "no UTF-8": raw(EVENTS, b'data: {"choices": [{"delta": {"content": \xff"}}]}\n\n'),
    "a megabyte": sends(event(f'"{"a" * (1 << 20)}"')),
    "silence": hangs(),
    "silence after a word": hangs("so"),
    "comments without end": raw(EVENTS, again=SILENT),
    "headers without end": raw("HTTP/1.1 200 OK\r\n", again=b"X: " + b"a" * 1000 + b"\r\n"),
    "a line without end": raw(EVENTS, "data: ", again=b"a" * 10_000),
    "a refusal without end": raw(REFUSED, again=b"a" * 1000),
}
"""Ways of an answer to go wrong."""


_LONG = raw(EVENTS, again=WORD.encode())
"""An answer to a question with the word `linger`: as many words as are allowed, 20 a second."""


class Mood:
    """How a server answers. Another thread may change `share`."""

    def __init__(self, seed: int, share: float) -> None:
        self.share = share
        """Probability that an answer goes wrong."""
        self.played: Counter[str] = Counter()
        """How often each way was gone."""
        self._rng = random.Random(seed)

    async def play(self, exchange: Exchange) -> None:
        name = self._rng.choice([*WRONG]) if self._rng.random() < self.share else "well"
        self.played[name] += 1
        await WRONG.get(name, self._well)(exchange)

    async def _well(self, exchange: Exchange) -> None:
        text = "\n".join(str(turn["content"]) for turn in exchange.body["messages"])
        await (_LONG if "linger" in text else says(said(text)))(exchange)


class _Always(list[Any]):
    """One play for all requests."""

    def pop(self, index: SupportsIndex = -1) -> Any:
        return self[index]


@contextmanager
def misbehaving(seed: int, share: float = 0.0) -> Iterator[tuple[str, Mood]]:
    """The URL of a server, and its mood."""
    mood = Mood(seed, share)
    with serving() as server:

        async def play(exchange: Exchange) -> None:
            server.exchanges.clear()  # hours of them
            await mood.play(exchange)

        server.plays = _Always([("", play)])
        yield server.url, mood
