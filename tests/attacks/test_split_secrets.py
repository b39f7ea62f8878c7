"""A server that repeats its key in pieces: no stream of `orgthink serve` hands them on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from attacks.catalogue import Attack, each
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("uvicorn")

from rule_engine import RuleEngine
from serve.test_serve import ASK, serving

from orgthink.engines.engine import Chunk, Context
from orgthink.record.episode import Sampling
from orgthink.serve.chat import ChatExchange
from orgthink.serve.stream import events
from orgthink.util import redaction

KEY = "zebra-quill-battery"
PIECES = "A stream shows no secret, in however many pieces a server sends it."


@pytest.fixture(autouse=True)
def nothing_hidden_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_forms", ())


class Letters(RuleEngine):
    """Says a rule letter by letter."""

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        async for chunk in super().stream(context, sampling):
            *first, last = chunk.pieces[0]
            for letter in first:
                await asyncio.sleep(0.002)
                yield Chunk((letter,))
            yield replace(chunk, pieces=(last,))


def says(text: str) -> str:
    return f"it is {KEY}, ze so <ANSWER> three </ANSWER>"


def streamed(name: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return f"/v1/{name}", {"model": "sequential-rule", "stream": True, **more}


@each(
    Attack("the key, a letter at a time, to the chat interface", PIECES, "…", streamed("chat/completions", **ASK)),
    Attack("the key, a letter at a time, to the Responses interface", PIECES, "…",
           streamed("responses", input=ASK["messages"])),
)  # fmt: skip
async def test_a_key_in_pieces(attack: Attack, tmp_path: Path) -> None:
    path, asked = attack.given
    redaction.conceal(KEY)
    async with serving(tmp_path, other=Letters(says)) as server:
        reply = await server.client.post(path, json=asked)
    found = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
    deltas = (
        one["delta"] if "input" in asked else one["choices"][0]["delta"].get("reasoning")
        for one in found
        if "delta" in one or "choices" in one
    )
    said = "".join(delta for delta in deltas if isinstance(delta, str))
    assert KEY[:8] not in said and KEY[-8:] not in said and "…" in said
    assert ", ze so" in said, "nothing else is lost"


async def test_what_waits_at_the_end_of_a_stream_is_said() -> None:
    redaction.conceal(KEY)
    (exchange := Mock(ChatExchange)).begins.return_value = ()
    exchange.says.side_effect = lambda text: [text.encode()]
    exchange.fails.return_value = [b"!"]
    (texts := asyncio.Queue[str | None]()).put_nowait("so zebra")
    task = asyncio.create_task(asyncio.sleep(0.01))
    task.add_done_callback(lambda done: texts.put_nowait(None))
    task.cancel()  # a client ended it: what was said before is said all the same
    sent = [part async for part in events(exchange, task, texts)]  # type: ignore[arg-type]
    assert b"".join(sent) == b"so zebra!"


@given(st.lists(st.sampled_from(["a", "b", "ab", "aba", "abab1234", "abab1234abab", "x"])))
def test_pieces_are_redacted_like_the_whole(parts: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redaction, "_forms", ())
        redaction.conceal("abab1234abab")
        shown, waiting = "", ""
        for part in parts:
            text, waiting = redaction.unsplit(waiting + part)
            shown += text
        assert "abab1234abab" not in shown
        assert shown + waiting == redaction.redact("".join(parts))
