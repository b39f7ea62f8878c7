"""Clients of `orgthink serve` and `orgthink mcp` of all kinds: honest ones, who must be answered, and others."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import httpx2

KEY = "sesame"
BUSY, LATER = (429, 503), 0.5
"""Statuses of a server that is full, and the seconds after which its client asks again."""
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
JSON = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
MCP = {"content-type": "application/json", "accept": "application/json, text/event-stream"}

Client = Callable[["Gate"], Awaitable[None]]
"""One visit. AssertionError if an honest one is not answered, or another one is not refused as it should be."""


class Gate:
    """The servers, as one client sees them."""

    def __init__(self, url: str, tools: str, seed: int, counts: Counter[str]) -> None:
        self.url, self.tools, self.counts, self.rng = url, tools, counts, random.Random(seed)
        self.client = httpx2.AsyncClient(base_url=url, timeout=120, headers={"authorization": f"Bearer {KEY}"})
        self.asked: dict[str, str] = {}
        """Questions that were answered, and their answers."""

    def question(self, words: str = "") -> tuple[str, str]:
        """A new question that no agent answers wrongly, and its answer."""
        first, second = self.rng.randrange(10**9), self.rng.randrange(0, 10**9, 2)
        return f"{words}sum {first} + {second}", str(first + second)

    def model(self) -> str:
        return self.rng.choice(("sequential-tiny", "all-tiny", "verifier-corrector-tiny"))

    async def ask(self, method: str, path: str, **how: Any) -> httpx2.Response:
        """The answer of a server that is not full."""
        while (reply := await self.client.request(method, path, **how)).status_code in BUSY:
            self.counts["asked to come later"] += 1
            await asyncio.sleep(LATER)
        assert reply.status_code == 200, (method, path, reply.status_code, reply.text[:300])
        return reply

    def right(self, question: str, expected: str, found: Any) -> None:
        assert found == expected, f"{question}: {found!r}, not {expected}"
        self.asked[question] = expected

    async def dial(self, data: bytes, url: str = "") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection on which these bytes are sent."""
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url or self.url).port)
        writer.write(data)
        return reader, writer


def events(text: str) -> list[dict[str, Any]]:
    """The events of a stream, without comments and without an incomplete last one."""
    return [json.loads(data) for data in re.findall(r"^data: (\{.*\})\n\n", text.replace("\r", ""), re.MULTILINE)]


def text_of(response: dict[str, Any]) -> Any:
    assert response["status"] == "completed", response
    return response["output"][-1]["content"][0]["text"]


def turns(question: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}]


async def chat(gate: Gate) -> None:
    question, answer = gate.question()
    stream = gate.rng.random() < 0.5
    body = {"model": gate.model(), "messages": turns(question), "stream": stream}
    reply = await gate.ask("POST", CHAT, json=body)
    if not stream:
        return gate.right(question, answer, reply.json()["choices"][0]["message"]["content"])
    pieces = [event["choices"][0]["delta"].get("content") or "" for event in events(reply.text) if event.get("choices")]
    gate.right(question, answer, "".join(pieces))


async def response(gate: Gate) -> None:
    question, answer = gate.question()
    stream = gate.rng.random() < 0.5
    reply = await gate.ask("POST", RESPONSES, json={"model": gate.model(), "input": question, "stream": stream})
    gate.right(question, answer, text_of(events(reply.text)[-1]["response"] if stream else reply.json()))


async def background(gate: Gate) -> None:
    """Begins a response, follows its events twice from a number, and fetches it."""
    question, answer = gate.question()
    body = {"model": gate.model(), "input": question, "background": True}
    place = f"{RESPONSES}/{(await gate.ask('POST', RESPONSES, json=body)).json()['id']}"
    after = gate.rng.randrange(5)
    whole, rest = [
        events((await gate.ask("GET", place, params={"stream": "true"} | more)).text)
        for more in ({}, {"starting_after": str(after)})
    ]
    assert rest == whole[after + 1 :], (len(whole), len(rest), after)
    gate.right(question, answer, text_of((await gate.ask("GET", place)).json()))


async def cancel(gate: Gate) -> None:
    """Begins a long response and ends it."""
    question, _ = gate.question("linger ")
    body = {"model": "sequential-tiny", "input": question, "background": True}
    begun = (await gate.ask("POST", RESPONSES, json=body)).json()
    await asyncio.sleep(gate.rng.uniform(0, 1))
    ended = (await gate.ask("POST", f"{RESPONSES}/{begun['id']}/cancel")).json()
    assert ended["status"] in ("cancelled", "incomplete"), ended


async def looks(gate: Gate) -> None:
    assert "orgthink_running" in (await gate.ask("GET", "/metrics")).text
    assert len((await gate.ask("GET", "/v1/models")).json()["data"]) == 3
    await gate.ask("GET", "/rows")
    assert "<html" in (await gate.ask("GET", "/")).text


async def tool(gate: Gate) -> None:
    """A session of the Model Context Protocol with one call."""
    question, answer = gate.question()
    session: dict[str, str] = {}

    async def send(method: str, number: int | None, **params: Any) -> httpx2.Response:
        identity = {} if number is None else {"id": number}
        body = {"jsonrpc": "2.0", "method": method, "params": params} | identity
        while (reply := await gate.client.post(gate.tools, json=body, headers=MCP | session)).status_code in BUSY:
            await asyncio.sleep(LATER)
        assert reply.status_code in (200, 202), (method, reply.status_code, reply.text[:300])
        return reply

    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "siege", "version": "1"}}
    session["mcp-session-id"] = (await send("initialize", 0, **hello)).headers["mcp-session-id"]
    session["mcp-protocol-version"] = "2025-06-18"
    await send("notifications/initialized", None)
    reply = await send("tools/call", 1, name="sequential-tiny", arguments={"problem": question})
    gate.right(question, answer, events(reply.text)[-1]["result"]["structuredContent"]["answer"])
    await gate.client.delete(gate.tools, headers=session)


BODIES: list[tuple[bytes, int]] = [
    (b'{"model": "sequential-tiny", "mess', 400),
    (b"\0" * 1000, 400),
    (b'{"model": "\xff\xfe"}', 400),
    (b"[" * 100_000, 400),
    (b'{"model": ' + b"9" * 10_000 + b"}", 400),
    (b'{"model": "none", "messages": [{"role": "user", "content": "x"}]}', 404),
    (b'{"model": "all-tiny", "messages": [{"role": "tool", "content": "\\ud800"}]}', 400),
    (b'{"model": "all-tiny", "messages": [], "temperature": NaN}', 400),
    (b" " * (9 << 20), 413),
]


async def malformed(gate: Gate) -> None:
    sent, status = gate.rng.choice(BODIES)
    reply = await gate.client.post(gate.rng.choice((CHAT, RESPONSES)), content=sent, headers=JSON)
    assert reply.status_code in (status, 400, 503), (sent[:40], reply.status_code, reply.text[:200])


async def stranger(gate: Gate) -> None:
    path = gate.rng.choice((CHAT, "/v1/models", "/rows", "/metrics", f"{RESPONSES}/resp_1"))
    reply = await gate.client.request(
        "POST" if path == CHAT else "GET", path, headers={"authorization": f"Bearer {KEY[: gate.rng.randrange(6)]}x"}
    )
    assert reply.status_code in (401, 503), (path, reply.status_code)


def request(gate: Gate, **more: Any) -> bytes:
    body = {"model": gate.model(), "messages": turns(gate.question("linger ")[0]), **more}
    content = json.dumps(body).encode()
    head = "".join(f"{name}: {value}\r\n" for name, value in JSON.items())
    return f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\n{head}content-length: {len(content)}\r\n\r\n".encode() + content


async def loris(gate: Gate) -> None:
    """Sends a request letter by letter, and goes."""
    _, writer = await gate.dial(b"")
    for letter in request(gate)[: gate.rng.randrange(5, 60)]:
        writer.write(bytes([letter]))
        await asyncio.sleep(0.2)
    writer.close()


async def dropper(gate: Gate) -> None:
    """Goes within its request, right after it, or within the answer."""
    sent = request(gate, stream=True)
    reader, writer = await gate.dial(sent[: gate.rng.choice((50, len(sent) - 9, len(sent)))])
    with suppress(TimeoutError):
        await asyncio.wait_for(reader.read(gate.rng.choice((1, 2000))), gate.rng.uniform(0, 2))
    writer.transport.abort() if gate.rng.random() < 0.5 else writer.close()


async def deaf(gate: Gate) -> None:
    """Reads nothing of a stream."""
    _, writer = await gate.dial(request(gate, stream=True))
    await asyncio.sleep(gate.rng.uniform(1, 6))
    writer.close()


async def noise(gate: Gate) -> None:
    """Sends bytes that are not HTTP, or messages that are not of its protocol."""
    bad = gate.rng.choice((b"\x16\x03\x01" * 500, b"GET\r\n\r\n", gate.rng.randbytes(3000), b"A" * 200_000))
    reader, writer = await gate.dial(bad, gate.rng.choice((gate.url, gate.tools)))
    with suppress(OSError, TimeoutError):
        await asyncio.wait_for(reader.read(), 5)
    writer.close()
    for body in (b"[" * 50_000, b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call"}', b'{"jsonrpc": "1.0"}', b"\0"):
        assert (await gate.client.post(gate.tools, content=body, headers=MCP)).status_code in (400, 404, 503)


HONEST: dict[Client, int] = {chat: 4, response: 3, background: 3, cancel: 1, looks: 1, tool: 2}
OTHERS: dict[Client, int] = {malformed: 3, stranger: 2, loris: 2, dropper: 4, deaf: 1, noise: 1}
"""Kinds of visits, and how often each is paid."""
