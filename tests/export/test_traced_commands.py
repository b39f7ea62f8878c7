"""`--otlp` of the commands: what they store arrives at the collector while they run."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from attacks.serving import serving
from loopback import MODEL, says

pytest.importorskip("opentelemetry.sdk")
from collector import Receiver, receiving, values

from orgthink.export.otlp import name_of, with_beginnings
from orgthink.export.spans import trace_spans
from orgthink.record.folder import RunFolder


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as one:
        yield one


def ids(receiver: Receiver) -> list[int]:
    return sorted(int.from_bytes(span.span_id) for span in receiver.spans)


def stored(path: Path) -> list[int]:
    """Ids of the spans of what a folder holds."""
    folder = RunFolder.open(path)
    return sorted(
        span.context.span_id for episode in folder.episodes() for span in trace_spans(episode, run=name_of(folder))
    )


@contextmanager
def serve(engine: str, collector: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own, and where it takes questions."""
    command = [sys.executable, "-m", "orgthink", "serve", "--url", engine, "--model", MODEL, "--port", "0"]
    options = ["--organizations", "sequential", "--otlp", collector, "--out", str(folder / "run")]
    process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"http://127.0.0.1:\d+/v1", process.stdout.readline())
        assert found is not None
        yield process, f"{found[0]}/chat/completions"
    finally:
        process.kill()
        process.wait()


def ask() -> dict[str, Any]:
    return {"model": f"sequential-{MODEL}", "messages": [{"role": "user", "content": "How many?"}]}


@pytest.mark.thorough
def test_serve_sends_every_episode_and_notes_when_it_ended(receiver: Receiver, tmp_path: Path) -> None:
    with serving(says("I think: <ANSWER> three </ANSWER>")) as server, serve(server.url, receiver.url, tmp_path) as run:
        process, url = run
        reply = httpx2.post(url, json=ask(), timeout=60).json()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert reply["choices"][0]["message"]["content"] == "three"
    assert ids(receiver) == stored(tmp_path / "run") != []
    ((episode, began),) = with_beginnings(RunFolder.open(tmp_path / "run"))
    root = next(span for span in receiver.spans if not span.parent_span_id)
    assert values(root.attributes)["gen_ai.conversation.id"] == episode.id == reply["orgthink"]["episode_id"]
    assert abs(root.start_time_unix_nano / 1e9 - began) < 1 and abs(time.time() - began) < 600
