"""Decoding speed of episodes that run alone. A script that commit a46cad4 can run as well, for `benchmarks.former`.

`python one_episode.py MODEL ORGANIZATION` prints {"tokens": …, "seconds": …} for eight problems, one after another.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
import sys
import time
from pathlib import Path

from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.sequential import Sequential
from orgthink.record.episode import Sampling
from orgthink.runtime import Backing, Limits, attempt
from orgthink.tasks import task_named

PROBLEMS = 8
ORGANIZATIONS = {"asyncthink": AsyncThink(prompts="pocket"), "sequential": Sequential(prompts="pocket")}


async def main(model: Path, organization: str) -> None:
    try:
        local = importlib.import_module("orgthink.engines.local.engine")
    except ModuleNotFoundError:  # a46cad4
        local = importlib.import_module("orgthink.engines.local")
    engine = local.LocalEngine.open(model)
    problems = list(itertools.islice(task_named("countdown-mini").problems("test", 0), PROBLEMS + 1))
    tokens, start = 0, 0.0  # tokens of the record: what is sampled and thrown away is no speed
    for seed, problem in enumerate(problems):
        if seed == 1:  # the first one warms up
            tokens, start = 0, time.perf_counter()
        backing = Backing(engine, Sampling(512, temperature=1.0, seed=seed))
        episode = await attempt(ORGANIZATIONS[organization], problem, backing, limits=Limits(capacity=2))
        tokens += sum(trace.steps for trace in episode.traces)
    seconds = time.perf_counter() - start
    print(json.dumps({"tokens": tokens, "seconds": seconds}))
    await engine.aclose()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
