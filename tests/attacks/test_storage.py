"""A run folder of `orgthink serve` that cannot be written any more: the fault of the server, not of its clients."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from attacks.catalogue import Attack, each

pytest.importorskip("uvicorn")

from serve.test_serve import ASK, serving

from orgthink.record import folder as store
from orgthink.serve import background

KEPT = "An answer that cannot be stored still reaches its client, and the log says why it was not stored."
FAULT = "A server that cannot store episodes says that it failed, before a model is paid."


def last_event(text: str) -> dict[str, Any]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
    return json.loads(lines[-1])


def fills(file: Any, content: bytes) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@each(
    Attack("a disk that is full", KEPT, "the answer", False),
    Attack("a disk that is full, at a stream", KEPT, "the answer", True),
)
async def test_an_answer_is_not_lost(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as server:
        monkeypatch.setattr(store, "append", fills)
        reply = await server.ask(stream=attack.given)
        assert reply.status_code == 200 and '"three"' in reply.text and "error" not in reply.text
        monkeypatch.undo()
        assert (await server.ask()).status_code == 200
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert "No space left on device" in line and "bug" not in line and "stored" in line
    assert len(list(server.folder.episodes())) == 1


@each(
    Attack("a run folder that was moved", FAULT, "status 500", lambda path: path.rename(path.with_name("moved"))),
    Attack("the lock of a run folder that was removed", FAULT, "status 500", lambda path: (path / ".lock").unlink()),
)
async def test_no_model_is_paid_for_nothing(attack: Attack, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(tmp_path) as server:
        attack.given(server.folder.path)
        for stream in (False, True):
            reply = await server.ask(stream=stream)
            assert (reply.status_code, reply.json()["error"]["type"]) == (500, "server_error")
            assert str(tmp_path) not in reply.text and "messages" not in reply.text
        assert server.engine.requests == 0
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert lines and all("was moved or removed" in line for line in lines)


@each(Attack("a folder that goes while the model answers", KEPT, "the answer"))
async def test_a_folder_that_goes_meanwhile(attack: Attack, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def moves(text: str) -> str:
        (tmp_path / "run").rename(tmp_path / "moved")
        return "<ANSWER> three </ANSWER>"

    async with serving(tmp_path, moves) as server:
        reply = await server.ask()
    assert reply.status_code == 200 and '"three"' in reply.text
    assert "was moved or removed" in caplog.text


@each(Attack("a full disk, at a response in the background", FAULT, "status 500, one line in the log"))
async def test_a_background_without_a_disk(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(file: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with serving(tmp_path, lambda text: "word " * 9_000, seconds=0.001) as server:
        monkeypatch.setattr(background, "open_to_append", full)
        asked = {"model": "sequential-rule", "input": ASK["messages"], "background": True}
        reply = await server.client.post("/v1/responses", json=asked)
        assert (reply.status_code, reply.json()["error"]["code"]) == (500, "not_stored")
        while server.episodes.running:
            await asyncio.sleep(0.01)
        assert server.engine.sampled < 9_000, "no model is paid for it to the end"
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(lines) == 1 and "No space left on device" in lines[0]
