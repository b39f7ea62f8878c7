"""Responses in the background whose stored events a stranger wrote."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("starlette")

from attacks.catalogue import Attack, each

from orgthink.serve.background import Background
from orgthink.serve.question import RequestError

ANSWERED = "A client that asks for a stored response gets it, or one clear error."
LINE = "404: there is no such response"
SECONDS = 60
"""Longest wait: an exception may leave a caller waiting for ever."""


def data(text: bytes) -> bytes:
    return b"event: response.created\ndata: " + text + b"\n\n"


@each(
    Attack("a stored response is no event", ANSWERED, LINE, b"x\n\n"),
    Attack("a stored response is no JSON", ANSWERED, LINE, data(b"{")),
    Attack("a stored response is not UTF-8", ANSWERED, LINE, data(b'"\xff"')),
    Attack("a stored response is nested deeply", ANSWERED, LINE, data(b"[" * 100_000)),
    Attack("a stored event is a list", ANSWERED, LINE, data(b"[]")),
    Attack("a stored event has no response", ANSWERED, LINE, data(b"{}")),
    Attack("a stored response is null", ANSWERED, LINE, data(b'{"response": null}')),
    Attack("a stored response is a list", ANSWERED, LINE, data(b'{"response": [1]}')),
    Attack("a stored response has no status", ANSWERED, LINE, data(b'{"response": {"id": "r"}}')),
)
def test_a_stored_response_of_a_stranger(attack: Attack, tmp_path: Path) -> None:
    (tmp_path / "resp_1.sse").write_bytes(attack.given)
    with pytest.raises(RequestError, match="there is no response"):
        asyncio.run(asyncio.wait_for(Background(tmp_path).find("resp_1"), SECONDS))
