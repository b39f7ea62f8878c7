"""The first lane at a streaming client, compared with the first token of the model itself.

Both read the same prompts, in turns, on one event loop: the engine is asked directly, and through HTTP on loopback.
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import httpx2
import torch

from benchmarks.models import CONFIG, random_model
from benchmarks.report import Line
from orgthink.engines.engine import Context
from orgthink.engines.local.engine import LocalEngine
from orgthink.models.decoder import Decoder
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.prompts import prompt
from orgthink.record.episode import Problem, Sampling
from orgthink.record.folder import RunFolder
from orgthink.runtime import Backing, Limits
from orgthink.serve.app import application, server
from orgthink.serve.episodes import Served, ServedEpisodes

REPEATS = 20
"""Questions of each kind. The kinds alternate, and the medians count."""
WORDS = 400
"""Length of a question, in words. Each begins with another, so that no prefix is known."""
SAMPLING = Sampling(8)


def run() -> list[Line]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        heads = {"num_attention_heads": 16, "num_key_value_heads": 8}
        config = replace(CONFIG, hidden_size=512, intermediate_size=1536, num_hidden_layers=8, **heads)
        random_model(folder, config, torch.float32)
        own, lane = asyncio.run(_medians(folder))
    size = sum(weight.numel() for weight in Decoder(config).parameters()) / 1e6
    conditions = (
        f"{size:.0f} M parameters, questions of {WORDS} tokens, {REPEATS} of each kind: {lane:.3f} and {own:.3f} s"
    )
    name = "first lane at a streaming client ÷ first token of the model itself"
    return [Line(name, lane / own, "≤ 1.2", lane / own <= 1.2, conditions)]


async def _medians(folder: Path) -> tuple[float, float]:
    """Seconds to the first token of the engine, and to the first lane of its server."""
    engine = LocalEngine.open(folder)
    served = Served("model", AsyncThink(), Backing(engine, SAMPLING), {}, Limits())
    run = RunFolder.create(folder / "run", "serve", {})
    direct: list[float] = []
    through: list[float] = []
    with run.journal(redo=None) as journal, socket.create_server(("127.0.0.1", 0)) as place:
        serving = server(application({"served": served}, ServedEpisodes(journal, 8)))
        task = asyncio.create_task(serving.serve([place]))
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{place.getsockname()[1]}") as client:
            for n in range(2 * REPEATS + 4):
                question = " ".join(f"w{(n * 7 + i) % 500}" for i in range(WORDS))
                if n % 2:
                    through.append(await _through(client, question))
                else:
                    direct.append(await _direct(engine, question))
        serving.should_exit = True
        await task
    await engine.aclose()
    return median(direct[2:]), median(through[2:])  # the first ones warm up


async def _direct(engine: LocalEngine, question: str) -> float:
    """Seconds to the first token."""
    begin = time.perf_counter()
    messages = prompt("paper", "organizer", Problem("1", "served", question), capacity=2)
    stream = engine.stream(Context(messages, [engine.prompt(messages)]), SAMPLING)
    await anext(stream)
    seconds = time.perf_counter() - begin
    await stream.aclose()
    return seconds


async def _through(client: httpx2.AsyncClient, question: str) -> float:
    """Seconds to the first reasoning."""
    body = {"model": "served", "stream": True, "messages": [{"role": "user", "content": question}]}
    begin = time.perf_counter()
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        async for line in response.aiter_lines():
            if "reasoning" in line:
                return time.perf_counter() - begin
    raise AssertionError("the stream ended without a lane")
