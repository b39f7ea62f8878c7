"""Reinforcement learning with the real vLLM as the sampler, whose weights are updated in place."""

import asyncio
import json
from dataclasses import replace

import pytest
import torch

from orgthink.engines.vllm import VllmEngine
from orgthink.record.folder import RunFolder
from orgthink.training.recipes.registry import RECIPES, Training, adjusted, go_on, start

pytestmark = pytest.mark.vllm
ON_GPU = torch.cuda.is_available()
"""There vLLM's attention multiplies with 10 bits."""


def test_vllm_rolls_out_with_the_trainers_weights(tmp_path):
    """A sampler that kept the first weights would drift from the trainer at the second step: the rate is high."""
    small = ("rollout.problems=4", "rollout.group=4", "minibatches=1", "steps=3", "warmup=0", "learning_rate=1e-3")
    settings = {"dtype": "float32", "gpu_memory_utilization": 0.3} if ON_GPU else {}
    job = adjusted(RECIPES["asyncthink-pocket"], {}, (*small, *(["drift=0.1"] if ON_GPU else [])))
    job = replace(job, sampler="vllm", sampler_settings=settings)
    lines = []
    folder = go_on(start(Training("test", job), tmp_path / "run"), lines.append)
    asyncio.run(asyncio.run(VllmEngine.open(folder)).aclose())  # the sampler was closed: a process has one at a time
    assert [line["step"] for line in lines] == [1, 2, 3]
    for line in lines:
        assert line["logprob_difference"] < (1e-2 if ON_GPU else 1e-4) and line["gradient_norm"] > 0
    stored = (RunFolder.open(tmp_path / "run").path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in stored] == [1, 2, 3]
