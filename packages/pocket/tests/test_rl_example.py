"""examples/rl_step.py: a step end to end, and the same loss and gradient as the library's trainer."""

from __future__ import annotations

import asyncio
import math
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from itertools import islice
from pathlib import Path
from types import ModuleType

import pytest
import torch
from orgthink_pocket.shipped import POCKET_BASE

from orgthink.engines import engine_spec
from orgthink.engines.local.engine import LocalEngine
from orgthink.models.trainable import open_trainable
from orgthink.record.episode import Episode
from orgthink.runtime import Limits
from orgthink.tasks import task_named
from orgthink.training.backend import EmbeddedBackend
from orgthink.training.policy_loss import PolicyLoss, weighted
from orgthink.training.rows import PolicyRow

FILE = Path(__file__).parents[3] / "examples" / "rl_step.py"
TASK, PROBLEMS, GROUP, TOKENS, CAPACITY = "countdown-mini", 2, 4, 96, 3
LINE = re.compile(r"step 1: reward (\S+), (\S+) forks an episode, (\d+) rows, loss (\S+), gradient norm (\S+)\n")
TOLERANCE = 1e-4
"""Relative; the example computes rows one by one, the library packs them: float32 sums in another order."""


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = spec_from_file_location("rl_step", FILE)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def rows(example: ModuleType) -> list[PolicyRow]:
    """Rows of real rollouts with random advantages, so that no group is left out."""
    rng = random.Random(0)
    episodes = asyncio.run(rolled_out(example))
    assert len(episodes) == PROBLEMS * GROUP
    return example.training_rows(episodes, {episode.id: rng.gauss(0, 1) for episode in episodes}, 0)


async def rolled_out(example: ModuleType) -> list[Episode]:
    engine = LocalEngine.open(POCKET_BASE, slots=32, threaded=False)
    task, limits = task_named(TASK), Limits(capacity=CAPACITY, max_tokens=TOKENS)
    problems = list(islice(task.problems("train", 0), PROBLEMS))
    try:
        await engine.update_weights(open_trainable(POCKET_BASE, None, torch.float32, "cpu").to_hf(), "0")
        return await example.roll_out(engine, task, problems, GROUP, engine_spec("pocket-base").prompts, limits, 0)
    finally:
        await engine.aclose()


def test_a_step_runs_from_end_to_end(example: ModuleType, capsys: pytest.CaptureFixture[str]):
    options = f"--model pocket-base --task {TASK} --steps 1 --problems {PROBLEMS} --group {GROUP}"
    options += f" --max-tokens {TOKENS} --capacity {CAPACITY}"
    asyncio.run(example.train(example.arguments(options.split())))
    match = LINE.fullmatch(capsys.readouterr().out)
    assert match is not None
    reward, forks, count, loss, norm = map(float, match.groups())
    assert math.isfinite(reward) and math.isfinite(loss) and forks >= 0
    assert (norm > 0) == (count > 0), "no rows are left if all groups have equal rewards"


def drifted(rows: Sequence[PolicyRow]) -> list[PolicyRow]:
    """As if older weights had sampled the rows: many importance ratios are outside the clip range."""
    rng = random.Random(1)
    return [replace(row, logprobs=tuple(p + rng.uniform(-0.6, 0.6) for p in row.logprobs)) for row in rows]


@pytest.mark.numerical
@pytest.mark.parametrize("policy", ["current", "older"])
def test_loss_and_gradient_are_those_of_the_trainer(policy: str, example: ModuleType, rows: list[PolicyRow]):
    batch = rows if policy == "current" else drifted(rows)
    model, other = (open_trainable(POCKET_BASE, None, torch.float32, "cpu") for _ in range(2))
    loss, norm = example.update(model, torch.optim.AdamW(model.parameters(), lr=0.0), batch)

    backend = EmbeddedBackend(other, LocalEngine.open(POCKET_BASE, threaded=False), POCKET_BASE)
    signals = backend.forward_backward(weighted(batch, "token-mean"), PolicyLoss())
    assert (signals.clipped > 0) == (policy == "older")
    # Advantages of both signs cancel in the loss, so its error is relative to the size of its terms.
    size = sum(abs(row.advantage) * sum(row.trained) for row in batch) / signals.tokens
    assert loss == pytest.approx(signals.loss, abs=TOLERANCE * size)
    assert norm == pytest.approx(backend.optim_step(0.0, 1.0), rel=TOLERANCE)
    assert norm > 0
