"""vLLM in this process on the fork–join workload, against plain completions and the local engine."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import torch

from benchmarks.fork_join import ROUNDS, Throughput, fork_join, plain, plans
from benchmarks.models import pocket_size_model
from benchmarks.report import Line
from orgthink.engines.local import LocalEngine
from orgthink.engines.vllm import VllmEngine
from orgthink.episode import Origin

EPISODES = 128
SLOTS = 128
BLOCK = 32
"""Tokens of a block of vLLM's prefix cache; a join finds whole blocks."""
REPEATS = 2
"""Runs of each kind, in turns; the best one counts."""


def run(episodes: int = EPISODES) -> list[Line]:
    with tempfile.TemporaryDirectory() as name:
        return asyncio.run(_measure(pocket_size_model(Path(name)), episodes))


async def _measure(folder: Path, episodes: int) -> list[Line]:
    local, unforked = [], []
    forked: list[tuple[Throughput, float, bool]] = []
    await _vllm_plain(folder, 8)  # warm up
    for _ in range(REPEATS):
        local.append(await _local(folder, episodes))
        forked.append(await _vllm(folder, episodes))
        unforked.append(await _vllm_plain(folder, episodes))
    vllm, joins, joins_met = max(forked, key=lambda run: run[0].rate)
    parity, ahead = vllm.rate / best(unforked), best(local) / vllm.rate
    load = (
        f"0.7 M parameters, fp32, {torch.get_num_threads()} threads; {episodes} episodes of {ROUNDS} joins,"
        f" {SLOTS} requests at once; vLLM {vllm.rate:,.0f} tokens/s; best of {REPEATS}"
    )
    return [
        Line("fork–join ÷ plain completions of the same lengths, vLLM", parity, "≥ 0.95", parity >= 0.95, load),
        Line("tokens computed at a join ÷ injected, vLLM", joins, "≤ 1.1, plus a block of 32 a join", joins_met, load),
        Line("local ÷ vLLM in process, fork–join", ahead, "≥ 1", ahead >= 1, load),
    ]


def best(runs: list[Throughput]) -> float:
    """Tokens per second of the fastest."""
    return max(run.rate for run in runs)


async def _open(folder: Path) -> VllmEngine:
    return await VllmEngine.open(folder, max_num_seqs=SLOTS)


async def _vllm(folder: Path, episodes: int) -> tuple[Throughput, float, bool]:
    """Fork–join; what a join computes for each injected token, and whether that is within the goal."""
    engine = await _open(folder)
    done, record = await fork_join(engine, plans(episodes))
    await engine.aclose()
    spans = [span for episode in record for trace in episode.traces for span in trace.spans]
    tokens = {origin: sum(span.tokens for span in spans if span.origin is origin) for origin in Origin}
    joins = sum(len(trace.joins) for episode in record for trace in episode.traces)
    computed, injected = engine.computed_prompt_tokens - tokens[Origin.PROMPT], tokens[Origin.INJECTED]
    return done, computed / injected, computed <= 1.1 * injected + BLOCK * joins


async def _vllm_plain(folder: Path, episodes: int) -> Throughput:
    engine = await _open(folder)
    done, _ = await plain(engine, plans(episodes))
    await engine.aclose()
    return done


async def _local(folder: Path, episodes: int) -> Throughput:
    engine = LocalEngine.open(folder, slots=SLOTS)
    done, _ = await fork_join(engine, plans(episodes))
    await engine.aclose()
    return done
