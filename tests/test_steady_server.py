"""The server of the comparison with optillm: it counts what it is sent and what it samples."""

from __future__ import annotations

import httpx2
import pytest

from benchmarks import steady_server
from benchmarks.steady_server import CONTEXT, LENGTHS, SteadyServer
from orgthink.engines.endpoint.client import EndpointEngine
from orgthink.organizations.votes import MajorityVote
from orgthink.record.episode import Problem, Sampling
from orgthink.runtime import Backing, Limits, attempt


async def test_streams_and_whole_answers_are_counted_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steady_server, "STEP", 0.0001)
    server, sampled = SteadyServer(), sum(length or CONTEXT for length in LENGTHS)
    async with server.serving() as url, httpx2.AsyncClient() as client:
        body = {"model": steady_server.MODEL, "messages": [{"role": "user", "content": "six"}], "n": len(LENGTHS)}
        whole = (await client.post(f"{url}/chat/completions", json=body)).json()
        assert [choice["finish_reason"] for choice in whole["choices"]] == ["stop", "stop", "stop", "length", "stop"]
        assert (server.requests, server.tokens) == (1, sampled) and whole["usage"]["completion_tokens"] == sampled
        engine = await EndpointEngine.open(url)
        server.reset()
        vote, backing = MajorityVote(samples=len(LENGTHS)), Backing(engine, Sampling(4 * CONTEXT))
        episode = await attempt(vote, Problem("1", "t", "six"), backing, limits=Limits(9))
        await engine.aclose()
    assert episode.answer == "42" and server.requests == len(LENGTHS)
    assert sum(trace.steps for trace in episode.traces) == server.tokens == sampled
