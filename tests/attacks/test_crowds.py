"""Clients of `orgthink serve` that make one request cost the server what a thousand others do."""

from __future__ import annotations

import errno
import logging
import tracemalloc
from pathlib import Path
from typing import Any, cast

import pytest
from attacks.catalogue import Attack, each

pytest.importorskip("uvicorn")

from attacks.test_clients import one_line, question, turn
from serve.test_serve import serving

from orgthink.serve.lanes import Lanes
from orgthink.util import terminal

pytestmark = pytest.mark.thorough

COSTS = "A request that is refused takes memory of its own size, and one line says why."
SHARED = "What one client sends or reads holds no other up."
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
RESPONSE = {"model": "sequential-rule", "input": "How many?"}


def costly(does: str, body: dict[str, Any], path: str = CHAT) -> Attack:
    return Attack(does, COSTS, "status 400, one line", (path, body))


@each(
    costly("a content of 50,000 parts that are numbers", question(**turn([1] * 50_000))),
    costly("50,000 stop texts that are numbers", question(stop=[1] * 50_000)),
    costly("10,000 messages that are numbers", question(messages=[1] * 10_000)),
    costly("an input of 10,000 numbers", RESPONSE | {"input": [1] * 10_000}, RESPONSES),
    costly("50,000 notes that are numbers", RESPONSE | {"metadata": {str(i): i for i in range(50_000)}}, RESPONSES),
    costly("a note with a name of two lines", RESPONSE | {"metadata": {"x\ny": 1}}, RESPONSES),
    costly("a note with a name of a megabyte", RESPONSE | {"metadata": {"k" * 1_000_000: 1}}, RESPONSES),
    costly("a limit of 400 digits", question(max_tokens=10**400)),
    costly("a limit of 400 digits for a response", RESPONSE | {"max_output_tokens": 10**400}, RESPONSES),
)
async def test_a_costly_refusal(attack: Attack, tmp_path: Path) -> None:
    path, body = attack.given
    async with serving(tmp_path) as server:
        tracemalloc.start()
        reply = await server.client.post(path, json=body)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert reply.status_code == 400 and server.engine.requests == 0
        one_line(reply.json())
        assert len(reply.json()["error"]["param"]) <= 100
    assert most < 16 << 20


@each(Attack("50,000 stop texts, each of which an answer is searched for", SHARED, "status 400, one line", 50_000))
async def test_many_stop_texts(attack: Attack, tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        reply = await server.ask(stop=["zq"] * attack.given)
        assert reply.status_code == 400 and reply.json()["error"]["param"] == "stop"
        one_line(reply.json())
        assert (await server.ask(stop=["zq"] * 64)).status_code == 200


@each(Attack("a question of a million unseen characters", SHARED, "those that are listed are spelled out", "\u200b"))
async def test_a_question_that_is_listed(attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths, clean = list[int](), terminal.clean

    def counted(text: str) -> str:
        lengths.append(len(text))
        return clean(text)

    monkeypatch.setattr(terminal, "clean", counted)
    async with serving(tmp_path) as server:
        assert (await server.ask(**turn(attack.given * 1_000_000))).status_code == 200
        (row,) = (await server.client.get("/rows")).json()["ended"]
    assert row["problem"].startswith("\\u200b\\u200b") and max(lengths) < 1000


@each(
    Attack("a key that is not ASCII, sent as UTF-8", SHARED, "it is the key", ("schlüssel", 200)),
    Attack("a key of other characters", SHARED, "status 401", ("schlussel", 401)),
)
async def test_a_key_of_many_letters(attack: Attack, tmp_path: Path) -> None:
    key, status = attack.given
    async with serving(tmp_path, key="schlüssel") as server:
        headers = {"authorization": b"Bearer " + key.encode()}
        assert (await server.client.get("/v1/models", headers=headers)).status_code == status


@each(
    Attack(
        "an answer that holds ends of lines that JSON leaves alone", SHARED, "they are escaped", "a\x85b\u2028c\u2029d"
    )
)
async def test_ends_of_lines(attack: Attack, tmp_path: Path) -> None:
    async with serving(tmp_path, lambda text: f"<ANSWER> {attack.given} </ANSWER>") as server:
        reply = await server.ask()
    assert reply.json()["choices"][0]["message"]["content"] == attack.given and len(reply.text.splitlines()) == 1


@each(Attack("a line that never ends, of an agent that waits for the floor", SHARED, "it is read once", "word"))
def test_a_line_without_end(attack: Attack) -> None:
    class Speaker:
        def __init__(self, name: str) -> None:
            self.id = name

    heard = list[str]()
    lanes = Lanes(heard.append)
    lanes.watch("text", cast(Any, Speaker("first")), "hm")
    tracemalloc.start()
    for _ in range(2_000):
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        lanes.watch("text", cast(Any, Speaker("second")), attack.given * 10)
        assert tracemalloc.get_traced_memory()[1] - before < 40_000, "the line so far is copied for a word"
    tracemalloc.stop()
    lanes.watch("text", cast(Any, Speaker("second")), "\n")
    assert "".join(heard).endswith("[second] " + attack.given * 20_000)


FULL = "A disk that is full costs an episode its record, and its client gets one line."


@each(
    Attack("a disk is full while a chat is answered", FULL, "status 500, one line", (CHAT, False)),
    Attack("a disk is full while a chat is streamed", FULL, "an event of an error, one line", (CHAT, True)),
)
async def test_a_full_disk(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, streams = attack.given

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with serving(tmp_path) as server:
        for name in ("append", "crash"):
            monkeypatch.setattr(server.episodes._journal, name, full)
        reply = await server.client.post(path, json=question(stream=streams))
        assert reply.status_code == (200 if streams else 500) and "the log of the server says why" in reply.text
    logged = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(logged) == 1 and logged[0].exc_info is None and "No space left" in logged[0].getMessage()
