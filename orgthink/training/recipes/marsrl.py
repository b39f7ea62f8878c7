"""Settings of the MarsRL paper (section 4.1), for a model folder of yours."""

from __future__ import annotations

from orgthink.training.marsrl.rollout import MarsRollout
from orgthink.training.marsrl.settings import MarsSettings
from orgthink.training.masking import Mastered
from orgthink.training.policy_loss import PolicyLoss
from orgthink.training.recipes.jobs import Mars


def paper() -> Mars:
    """MarsRL as in section 4.1 of its paper, for Qwen3-30B-A3B-Thinking-2507.

    From UloRL, whose trainer it uses: the constant learning rate (missing in the text), the probability from which a
    token is mastered, and POIS. Ours: steps and the target entropy. `live` is the largest possible number of unfinished
    outputs: 128 · 8 · (1 + 19 · 2). The paper also truncates its sampling (top-p, top-k); that biases the importance
    ratio, so it is not truncated here.
    """
    rollout = MarsRollout(
        "math",
        "paper",
        max_tokens=65_536,
        max_input=32_768,
        segment=16_384,
        temperature=0.85,
        problems=128,
        group=8,
        live=39_936,
    )
    settings = MarsSettings(
        rollout,
        steps=200,
        learning_rate=1e-6,
        warmup=0,
        decay=False,
        loss=PolicyLoss(old="pois"),
        mastered=Mastered(entropy=0.2, probability=0.99),
    )
    sampler_settings = {"gpu_memory_utilization": 0.3, "max_model_len": rollout.max_input + rollout.max_tokens}
    return Mars(settings, model=None, sampler="vllm", sampler_settings=sampler_settings, pack_tokens=16_384)


PAPER = paper()
