"""A client that leaves eight workers, in virtual time: when each token was sampled, counted at the engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")
from rule_engine import RuleEngine

from orgthink.engines.engine import Chunk, Context
from orgthink.organizations.votes import Parallel
from orgthink.record.episode import Sampling
from orgthink.record.folder import RunFolder
from orgthink.runtime import Backing, Limits
from orgthink.runtime.clock import run_virtual
from orgthink.serve.app import application
from orgthink.serve.background import Background
from orgthink.serve.episodes import Served, ServedEpisodes
from orgthink.util import redaction

EACH = 0.01
"""Virtual seconds of a token."""
LEFT = 1.005
"""When the client leaves: in the middle of a token, with 8 agents at work."""
AFTERWARDS = 1.0
"""How much longer the test looks on."""


class Clocked(RuleEngine):
    """Writes down when it sampled each token."""

    def __init__(self) -> None:
        super().__init__(lambda text: "word " * 9_000, seconds=EACH)
        self.moments: list[float] = []

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        async for chunk in super().stream(context, sampling):
            self.moments.append(asyncio.get_running_loop().time())
            yield chunk


BODIES = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "How many?"}]},
    "/v1/responses": {"input": "How many?"},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
def test_no_token_is_sampled_for_a_client_that_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, stream: bool
) -> None:
    monkeypatch.setattr(redaction, "_forms", ())  # the beginning of another test's secret would be held back
    engine = Clocked()
    sampled_at_one_second = 8 * round(LEFT // EACH)

    async def visit() -> None:
        body = json.dumps({"model": "eight", "stream": stream} | BODIES[path]).encode()
        heard: list[bytes] = []
        arrived = False

        async def receive() -> dict[str, Any]:
            nonlocal arrived
            if not arrived:
                arrived = True
                return {"type": "http.request", "body": body, "more_body": False}
            await asyncio.sleep(LEFT - asyncio.get_running_loop().time())
            assert engine.live == 8
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            heard.append(message.get("body", b""))

        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b""}
        await app(scope | {"asgi": {"spec_version": "2.3"}}, receive, send)
        assert (b"word" in b"".join(heard)) == stream
        await asyncio.sleep(AFTERWARDS)

    served = Served("model", Parallel(), Backing(engine, Sampling(10_000)), {}, Limits(8))
    run = RunFolder.create(tmp_path / "run", "serve", {})
    with run.journal(redo=None) as journal:
        episodes = ServedEpisodes(journal, 8)
        app = application({"eight": served}, episodes, Background(tmp_path))
        run_virtual(visit())
    assert len(engine.moments) == sampled_at_one_second, "all that was sampled until the client left"
    assert max(engine.moments) < LEFT and engine.live == episodes.running == 0
    (episode,) = run.episodes()
    assert sum(trace.steps for trace in episode.traces) == len(engine.moments) == episodes.counts.sampled
    assert len(episode.traces) == 9 and str(episode.stop) == "cancelled"
