"""Seconds where a decoding step is bound by memory, as on a GPU: recorded episodes, replayed on a larger model.

An episode's lengths, forks and joins are those of the record; its tokens are those of a Qwen3 shape of 0.6 B parameters
with random weights in bfloat16. A replay takes a minute, so each is stored as soon as it is done.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from math import log
from pathlib import Path
from typing import Any

import torch

from benchmarks.models import random_model
from benchmarks.replay import SHAPE, played_again, step_seconds
from experiments.shared.estimates import as_json, exponential
from experiments.shared.recorded import episodes_of
from orgthink.arena.config import Arena
from orgthink.engines.local.engine import LocalEngine
from orgthink.engines.local.qwen3 import Qwen3Config
from orgthink.episode import Episode
from orgthink.files import write_whole
from orgthink.measure.estimate import Estimate, difference
from orgthink.scale.sizing.configs import config_of
from orgthink.tabular import json_object
from orgthink.terminal import show

RIVALS = ("alone", "alone-untrained", "former-alone")
"""Methods to which the reference is compared, where an arena has them, unless others are named."""
PROBLEMS = 6
"""Held-out problems that are replayed: the first ones by their ids, solved or not, of the first training."""


def memory_bound(runs: Path, arena: Arena, rivals: Sequence[str] = RIVALS) -> dict[str, Any]:
    """Method → seconds of the reference ÷ its seconds on the same problems, a geometric mean with an interval over
    problems; and the seconds of each replay.
    """
    stored = runs / "replayed.json"
    seconds: dict[str, dict[str, float]] = json_object(stored) if stored.exists() else {}
    rivals = [name for name in rivals if name in arena.methods]
    wanted = [(name, episode) for name in (arena.reference, *rivals) for episode in _recorded(runs, arena, name)]
    missing = [(name, one) for name, one in wanted if one.problem.id not in seconds.get(name, {})]
    if missing:
        asyncio.run(_replay(missing, seconds, stored))
    ratios = {name: _ratio(seconds[arena.reference], seconds[name]) for name in rivals}
    return {"ratios": as_json(ratios), "seconds": seconds, "shape": SHAPE, "threads": torch.get_num_threads()}


def _recorded(runs: Path, arena: Arena, method: str) -> list[Episode]:
    return sorted(episodes_of(runs, method, arena.seeds[0]), key=lambda episode: episode.problem.id)[:PROBLEMS]


async def _replay(missing: list[tuple[str, Episode]], seconds: dict[str, dict[str, float]], stored: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = random_model(Path(folder), Qwen3Config(**config_of(SHAPE)), torch.bfloat16)
        engine = LocalEngine.open(model, dtype=torch.bfloat16)
        try:
            await step_seconds(engine, 1)  # warm up
            for name, episode in missing:
                start = time.perf_counter()
                await played_again(episode, engine)
                seconds.setdefault(name, {})[episode.problem.id] = time.perf_counter() - start
                write_whole(stored, json.dumps(seconds, indent=1).encode())
                show(f"replayed {name}: {seconds[name][episode.problem.id]:.0f} s")
        finally:
            await engine.aclose()


def _ratio(ours: dict[str, float], theirs: dict[str, float]) -> Estimate:
    """The first ÷ the second, a geometric mean over the problems that both have."""
    found = difference(*([(problem, log(value)) for problem, value in one.items()] for one in (ours, theirs)))
    return exponential(found)
