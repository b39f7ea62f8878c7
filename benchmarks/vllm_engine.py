"""vLLM in this process on the fork–join workload, compared with plain completions and the local engine."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import torch

from benchmarks.fork_join import ROUNDS, Plan, Throughput, fork_join, plain, plans
from benchmarks.models import pocket_size_model
from benchmarks.report import Line
from orgthink.engines.local.engine import LocalEngine
from orgthink.engines.vllm import VllmEngine
from orgthink.record.episode import Episode, Origin

EPISODES = 128
SLOTS = 128
BLOCK = 32
"""Number of tokens in a block of vLLM's prefix cache. A join reuses whole blocks."""
REPEATS = 2
"""Number of runs of each kind. The kinds alternate, and the best run counts."""


def run(episodes: int = EPISODES) -> list[Line]:
    with tempfile.TemporaryDirectory() as name:
        return asyncio.run(_measure(pocket_size_model(Path(name)), episodes))


async def _measure(folder: Path, episodes: int) -> list[Line]:
    vllm = await VllmEngine.open(folder, max_num_seqs=SLOTS)
    local = LocalEngine.open(folder, slots=SLOTS)
    rate, lines = await fork_joins(vllm, episodes, f"pocket size, fp32, {torch.get_num_threads()} threads", local)
    await vllm.aclose()
    await local.aclose()
    ahead = rate["local"] / rate["vllm"]
    load = lines[0].conditions
    return [*lines, Line("local ÷ vLLM in process, fork–join", ahead, "≥ 1.5", ahead >= 1.5, load)]


async def fork_joins(
    vllm: VllmEngine, episodes: int, model: str, local: LocalEngine | None = None
) -> tuple[dict[str, float], list[Line]]:
    """Tokens per second of each kind of run, and the ratios of vLLM. `model` names it and its conditions."""
    runs: dict[str, list[Throughput]] = {"vllm": [], "plain": []} | ({"local": []} if local else {})
    joins: list[tuple[float, bool]] = []
    for engine in filter(None, (local, vllm)):  # warm up
        await plain(engine, plans(8, seed=99))
    for seed in range(REPEATS):
        wanted = plans(episodes, seed)
        if local:
            runs["local"].append((await fork_join(local, wanted))[0])
        before = vllm.counters.computed_prompt_tokens
        done, record = await fork_join(vllm, wanted)
        runs["vllm"].append(done)
        joins.append(_joins(record, vllm.counters.computed_prompt_tokens - before))
        runs["plain"].append((await plain(vllm, [_other_words(plan) for plan in wanted]))[0])
    rate = {name: max(run.rate for run in done) for name, done in runs.items()}
    load = (
        f"{model}; {episodes} episodes of {ROUNDS} joins, {SLOTS} requests at once; vLLM {rate['vllm']:,.0f} tokens/s;"
        f" best of {REPEATS}"
    )
    parity = rate["vllm"] / rate["plain"]
    computed, met = max(joins)
    return rate, [
        Line("fork–join ÷ plain completions of the same lengths, vLLM", parity, "≥ 0.98", parity >= 0.98, load),
        Line("tokens computed at a join ÷ injected, vLLM", computed, f"≤ 1.1, plus {BLOCK} a join", met, load),
    ]


def _joins(record: list[Episode], computed: int) -> tuple[float, bool]:
    """Prefill tokens of joins per injected token, and whether that is within the goal."""
    traces = [trace for episode in record for trace in episode.traces]
    spans = [span for trace in traces for span in trace.spans]
    prompts, injected = (
        sum(span.tokens for span in spans if span.origin is origin) for origin in (Origin.PROMPT, Origin.INJECTED)
    )
    joins = sum(len(trace.joins) for trace in traces)
    return (computed - prompts) / injected, computed - prompts <= 1.1 * injected + BLOCK * joins


def _other_words(plan: Plan) -> Plan:
    """The same lengths, with prompts that are not in the cache."""
    return plan._replace(prompt=" ".join(reversed(plan.prompt.split())))
