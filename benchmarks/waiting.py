"""More episodes than slots: how long an episode takes on average, while all together take as long as ever.

Agents that go on after a join are served before those that begin (`orgthink/engines/local/`; in vLLM by
priority).
"""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import time
from pathlib import Path
from statistics import mean, median

from benchmarks.report import Line
from orgthink.engines import MODELS
from orgthink.engines.engine import Engine
from orgthink.engines.local.engine import LocalEngine
from orgthink.engines.vllm import VllmEngine
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Problem, Sampling
from orgthink.runtime import Backing, Limits, attempt
from orgthink.tasks import task_named

MODEL, TASK, TOKENS = "pocket-organizer", "countdown-mini", 192
SLOTS, EPISODES, REPEATS = 8, 24, 5


def run() -> list[Line]:
    return asyncio.run(_measure())


async def _measure() -> list[Line]:
    folder, on_vllm = Path(MODELS[MODEL]), importlib.util.find_spec("vllm") is not None
    engine = await VllmEngine.open(folder, max_num_seqs=SLOTS) if on_vllm else LocalEngine.open(folder, slots=SLOTS)
    problems = list(itertools.islice(task_named(TASK).problems("test", 0), EPISODES))
    shares = [await _share(engine, problems, seed) for seed in range(1 + REPEATS)]
    await engine.aclose()
    where = f"{EPISODES} episodes on {SLOTS} slots, {'vLLM' if on_vllm else 'local'}"
    name = f"mean seconds of an episode ÷ seconds of all, {where}"
    load = f"AsyncThink, {MODEL}, {TASK}, capacity 4, {TOKENS} tokens; median of {REPEATS}"
    return [Line(name, found := median(shares[1:]), "≤ 0.75", found <= 0.75, load)]


async def _share(engine: Engine, problems: list[Problem], seed: int) -> float:
    backing, limits = Backing(engine, Sampling(TOKENS, seed=seed)), Limits(4, max_tokens=TOKENS)

    async def seconds(problem: Problem) -> float:
        await attempt(AsyncThink(prompts="pocket"), problem, backing, limits=limits)
        return time.perf_counter() - start

    start = time.perf_counter()
    found = await asyncio.gather(*map(seconds, problems))
    return mean(found) / max(found)
