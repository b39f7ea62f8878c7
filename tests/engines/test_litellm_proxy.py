"""The real LiteLLM proxy between our client and a server (`make test-clients`)."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from loopback import Exchange, Play, answers, dies, loopback

from orgthink.engines.endpoint.client import EndpointEngine
from orgthink.organizations.sequential import Sequential
from orgthink.record.episode import Billed, Episode, Message, Problem, Sampling, Span, StopReason
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.util.http import RetryPolicy

pytestmark = pytest.mark.clients

LITELLM = Path(os.environ.get("LITELLM") or Path(__file__).parents[2] / ".venv-proxy" / "bin" / "litellm")
CONFIG = """
model_list:
  - model_name: stub
    litellm_params: {{model: openai/tiny, api_base: "http://127.0.0.1:{port}/v1", api_key: none, max_retries: 0}}
litellm_settings: {{telemetry: false, num_retries: 0}}
"""
USAGE = {
    "prompt_tokens": 40,
    "completion_tokens": 5,
    "total_tokens": 45,
    "prompt_tokens_details": {"cached_tokens": 32},
    "completion_tokens_details": {"reasoning_tokens": 2},
}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """The URL of a proxy, and the port at which it expects its server."""
    config, port, ours = tmp_path_factory.mktemp("proxy") / "config.yaml", free_port(), free_port()
    config.write_text(CONFIG.format(port=port))
    command = [str(LITELLM), "--config", str(config), "--host", "127.0.0.1", "--port", str(ours)]
    environment = os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    log = config.with_name("log").open("w")
    process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=config.parent)
    try:
        for _ in range(240):
            assert process.poll() is None, config.with_name("log").read_text()
            try:
                httpx2.get(f"http://127.0.0.1:{ours}/health/liveliness", timeout=2)
                break
            except httpx2.HTTPError:
                time.sleep(0.5)
        yield f"http://127.0.0.1:{ours}/v1", port
    finally:
        process.terminate()
        process.wait(30)


def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "tiny", "choices": [choice]}


def streams(text: str, thoughts: str = "", *, endless: bool = False) -> Play:
    async def play(exchange: Exchange) -> None:
        await exchange.begin()
        for word in thoughts.split():
            await exchange.event(chunk({"role": "assistant", "reasoning_content": f"{word} "}))
        for word in text.split():
            await exchange.event(chunk({"role": "assistant", "content": f"{word} "}))
        while endless and not exchange.gone.is_set():
            await exchange.event(chunk({"role": "assistant", "content": "word "}))
            await asyncio.sleep(0.01)
        await exchange.event(chunk({}, "stop"))
        await exchange.event({**chunk({}), "choices": [], "usage": USAGE})
        await exchange.event("[DONE]")
        await exchange.end()

    return play


async def probed(exchange: Exchange) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "length"}
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    reply = {"id": "x", "object": "chat.completion", "created": 1, "model": "tiny", "choices": [choice]}
    await exchange.reply(200, {**reply, "usage": usage})


class Reply:
    """What the model says, and nothing else."""

    name = "reply"
    roles = ("a",)

    async def run(self, problem: Problem, session: Session) -> str | None:
        return await session.agent("a", (Message("user", problem.text),)).complete()


async def through(
    behind: tuple[str, int], *plays: Play, organization: Organization | None = None, closed: bool = False
) -> tuple[Episode, int]:
    """An episode of a model behind the proxy, and the number of repeated requests.

    `closed`: the server must notice that its last stream was closed.
    """
    url, port = behind
    async with loopback(*plays, port=port) as server:
        server.probing = probed
        engine = await EndpointEngine.open(url, retry_policy=RetryPolicy(first_delay=0.1), api_key="sk-any")
        assert (engine.model, engine._keep_stops) == ("stub", None)
        work = attempt(organization or Reply(), Problem("p", "t", "q"), Backing(engine, Sampling(50, seed=3)))
        episode = await asyncio.wait_for(work, 60)
        await engine.aclose()
        if closed:
            await asyncio.wait_for(server.exchanges[-1].gone.wait(), 30)
    return episode, engine._server.retries


def last(episode: Episode) -> Span:
    return episode.root.spans[-1]


async def test_the_bill_and_the_thoughts_come_through(behind: tuple[str, int]) -> None:
    episode, _ = await through(behind, streams("so it is", "hm well"))
    span = last(episode)
    assert (span.text, span.reasoning, span.billed) == ("so it is ", "hm well ", Billed(40, 32, 5, 2))


async def test_a_busy_server_is_asked_again(behind: tuple[str, int]) -> None:
    episode, retries = await through(behind, answers(429, "slow down"), answers(503, "busy"), streams("so it is"))
    assert (last(episode).text, retries) == ("so it is ", 2)


async def test_a_stream_that_is_closed_at_a_tag_is_closed_behind_the_proxy(behind: tuple[str, int]) -> None:
    endless = streams("<ANSWER> 7 </ANSWER>", endless=True)
    episode, _ = await through(behind, endless, organization=Sequential(), closed=True)
    assert episode.answer == "7" and last(episode).billed is None


async def test_a_stream_that_breaks_off_behind_the_proxy_looks_whole(behind: tuple[str, int]) -> None:
    """A fault of LiteLLM's that no client sees: it says `stop`, with a usage of its own making. The docs say so."""
    episode, _ = await through(behind, dies("one two three"))
    assert (episode.stop, episode.error) == (StopReason.DONE, None)
    assert "one two three".startswith(episode.root.text.strip())
