"""The endpoint engine against the real OpenAI server of vLLM on loopback. `make test-vllm`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

import httpx2
from taught import BEFORE, FOUND, PROBLEM, taught_model
from terse import TERSE
from vllm_process import vllm_server

from orgthink.engines.endpoint.client import EndpointEngine
from orgthink.engines.engine import Chunk, Context, EngineError, EngineUnavailable, FinishReason
from orgthink.engines.vllm import VllmEngine
from orgthink.models.tokenizer import Tokenizer
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.prompts import prompt
from orgthink.record.episode import Message, Origin, Sampling
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return taught_model(tmp_path_factory.mktemp("models") / "taught")


@pytest.fixture(scope="module")
def url(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with vllm_server(folder, tmp_path_factory.mktemp("server") / "log") as url:
        yield url


def context(engine: Any, text: str = "any") -> Context:
    messages = (Message("user", text),)
    return Context(messages, [engine.prompt(messages)])


async def read(engine: Any, context: Context, sampling: Sampling) -> list[Chunk]:
    return [chunk async for chunk in engine.stream(context, sampling)]


def joined(chunks: list[Chunk], field: str) -> list[Any]:
    return [value for chunk in chunks for value in getattr(chunk, field)]


async def solved(engine: Any) -> Any:
    role = Backing(engine, Sampling(200, 0.0))
    return await attempt(AsyncThink(prompts=TERSE), PROBLEM, role, limits=Limits(2))


async def test_tokens_are_those_of_the_engine_in_process(folder: Path, url: str) -> None:
    local = await VllmEngine.open(folder, kv_cache_memory_bytes=64 << 20)
    server = await EndpointEngine.open(url, "taught", tokenizer=Tokenizer(folder))
    for sampling in (Sampling(60, 0.0), Sampling(60, seed=5), Sampling(60, seed=6, stop=("?1", "?2", "?3", "?4", "e"))):
        here, there = [await read(engine, context(engine), sampling) for engine in (local, server)]
        for field in ("token_ids", "pieces"):
            assert joined(here, field) == joined(there, field)
        assert joined(here, "logprobs") == pytest.approx(joined(there, "logprobs"), abs=1e-4)
        assert here[-1].finish is there[-1].finish
    await local.aclose()
    await server.aclose()


async def test_an_episode_by_ids(folder: Path, url: str) -> None:
    engine = await EndpointEngine.open(url, tokenizer=Tokenizer(folder))
    episode = await solved(engine)
    assert episode.answer == episode.traces[1].returned == FOUND
    for trace in episode.traces:
        for span in trace.spans:
            assert span.token_ids is not None and len(span.token_ids) == span.tokens
            assert (span.logprobs is not None) == (span.origin is Origin.SAMPLED)
    await engine.aclose()


async def test_an_episode_by_text(folder: Path, url: str) -> None:
    engine = await EndpointEngine.open(url)
    episode = await solved(engine)
    assert episode.answer == episode.traces[1].returned == FOUND
    organizer = [span for span in episode.root.spans if span.origin is Origin.SAMPLED]
    assert organizer[0].text == BEFORE, "the stop text is not lost"
    assert organizer[0].tokens == len(Tokenizer(folder).encode(BEFORE))
    assert organizer[0].logprobs is not None
    for span in (span for trace in episode.traces for span in trace.spans if span.origin is Origin.SAMPLED):
        assert span.billed is not None and span.billed.output == span.tokens and (span.billed.input or 0) > 10
    await engine.aclose()


async def test_a_server_of_vllm_keeps_stop_texts(url: str) -> None:
    engine = await EndpointEngine.open(url)
    assert engine.model == "taught"
    assert engine._keep_stops == "include_stop_str_in_output"
    await engine.aclose()


async def test_closing_a_stream_stops_the_server(folder: Path, url: str) -> None:
    engine = await EndpointEngine.open(url, tokenizer=Tokenizer(folder))
    long = context(engine, "never ending " * 3)
    async with aclosing(engine.stream(long, Sampling(900, temperature=2.0, seed=2))) as stream:
        for _ in range(5):
            await anext(stream)
        assert _metric(url, "vllm:num_requests_running") == 1
    deadline = time.monotonic() + 10
    while _metric(url, "vllm:num_requests_running") and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    sampled = _metric(url, "vllm:generation_tokens_total")
    await asyncio.sleep(0.3)
    assert _metric(url, "vllm:num_requests_running") == 0
    assert _metric(url, "vllm:generation_tokens_total") == sampled
    await engine.aclose()


def _metric(url: str, name: str) -> float:
    lines = httpx2.get(url.replace("/v1", "/metrics")).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{"))


async def test_the_context_ends_a_stream(folder: Path, url: str) -> None:
    engine = await EndpointEngine.open(url, tokenizer=Tokenizer(folder))
    c = context(engine, "x" * 1000)
    room = 1024 - len(c.token_ids)
    chunks = await read(engine, c, Sampling(500, seed=1, temperature=1.0))
    assert len(joined(chunks, "token_ids")) <= room
    assert chunks[-1].finish in (FinishReason.LENGTH, FinishReason.EOS)
    with pytest.raises(EngineError, match="does not fit"):
        await read(engine, context(engine, "x" * 2000), Sampling(5))
    chat = await EndpointEngine.open(url)
    with pytest.raises(EngineError, match=r"answered 400: .*1024"):
        await read(chat, context(chat, "x" * 2000), Sampling(5))
    await engine.aclose()
    await chat.aclose()


async def test_a_model_that_is_not_there(url: str) -> None:
    with pytest.raises(EngineUnavailable, match="no model 'taut': taught"):
        await EndpointEngine.open(url, "taut")


def test_the_prompt_has_what_the_episode_needs(folder: Path) -> None:
    ids = Tokenizer(folder).prompt(prompt(TERSE, "organizer", PROBLEM, capacity=2)).token_ids
    assert ids and len(ids) < 200
