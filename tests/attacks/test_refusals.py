"""Refusals of `orgthink serve` that come before the client has sent everything, and heads that two programs read
differently."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from attacks.catalogue import Attack, each

pytest.importorskip("uvicorn")

from serve.test_serve import serving

ARRIVES = "A refusal reaches a client that sends all of its body before it reads."
ALIKE = "A request whose length can be read in two ways is refused: a proxy may have read it in the other way."
KEY = "sesame-opens-the-cave"
LARGE = 12_000_000
"""More bytes than the sockets of both sides hold."""


def exchange(port: int | None, sent: bytes) -> bytes:
    """What a client gets that sends everything before it reads, as simple clients do."""
    with socket.create_connection(("127.0.0.1", port or 0), 20) as client:
        client.sendall(sent)
        found = b""
        while b"}}" not in found:
            found += client.recv(1 << 16) or b"}}"
    return found


def head(path: str = "/v1/chat/completions", *more: str, method: str = "POST", length: int = LARGE) -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        "host: localhost",
        "content-type: application/json",
        "connection: close",
        *more,
    ]
    return "\r\n".join([*lines, f"content-length: {length}", "", ""]).encode()


@each(
    Attack("12 MB without the key", ARRIVES, "status 401", (head(), KEY)),
    Attack("12 MB for a path that does not exist", ARRIVES, "status 404", (head("/v1/completion"), None)),
    Attack("12 MB with a method that the path does not have", ARRIVES, "status 405", (head(method="PUT"), None)),
    Attack("12 MB from a page of another host", ARRIVES, "status 403",
           (head("/v1/chat/completions", "origin: https://evil.example"), None)),
    Attack("12 MB of a question", ARRIVES, "status 413", (head(length=LARGE), None)),
)  # fmt: skip
async def test_a_refusal_of_a_large_body_arrives(attack: Attack, tmp_path: Path) -> None:
    sent, key = attack.given
    body = b" " * LARGE
    async with serving(tmp_path, key=key) as server:
        reply = await asyncio.to_thread(exchange, server.client.base_url.port, sent + body)
    assert reply.startswith(f"HTTP/1.1 {attack.outcome.split()[-1]} ".encode()) and b'"error"' in reply


@each(Attack("a client that announces 12 MB and sends nothing", ARRIVES, "status 401 at once"))
async def test_a_refusal_does_not_wait_for_the_body(attack: Attack, tmp_path: Path) -> None:
    async with serving(tmp_path, key=KEY) as server:
        reply = await asyncio.to_thread(exchange, server.client.base_url.port, head())
    assert reply.startswith(b"HTTP/1.1 401 ")


@each(Attack("a body with Content-Length and Transfer-Encoding", ALIKE, "status 400"))
async def test_a_body_of_two_lengths(attack: Attack, tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        sent = head("/v1/chat/completions", "transfer-encoding: chunked", length=4) + b"2\r\n{}\r\n0\r\n\r\n"
        reply = await asyncio.to_thread(exchange, server.client.base_url.port, sent)
    assert reply.startswith(b"HTTP/1.1 400 ") and b"Transfer-Encoding" in reply


async def test_the_scheme_of_a_key_in_any_case(tmp_path: Path) -> None:
    async with serving(tmp_path, key=KEY) as server:
        for scheme in ("Bearer", "bearer", "BEARER"):
            reply = await server.client.get("/v1/models", headers={"authorization": f"{scheme} {KEY}"})
            assert reply.status_code == 200
        assert (await server.client.get("/v1/models", headers={"authorization": "bearer x"})).status_code == 401
