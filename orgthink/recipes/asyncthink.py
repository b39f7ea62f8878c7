"""Settings of the AsyncThink paper (sections 4.2 and 4.3), for a model folder of yours."""

from __future__ import annotations

from orgthink.evaluation import OrganizationSpec
from orgthink.recipes.jobs import Pairs, Policy
from orgthink.rewards.asyncthink import AsyncThinkReward
from orgthink.runtime.budget import Budget, Limits
from orgthink.training.episodes import RlSettings
from orgthink.training.rollout import Rollout
from orgthink.training.sft import SftSettings


def paper(task: str, capacity: int, tokens: int, problems: int, group: int) -> Policy:
    """Reinforcement learning as in the paper: learning rate 1e-6, budgets that a Join renews.

    Steps, clip range, λ, τ, R_FE and the most turns of an episode are ours: the paper does not tell.
    """
    rollout = Rollout(
        task,
        OrganizationSpec("asyncthink", {"prompts": "paper"}),
        Limits(capacity, Budget(turns=64)),
        max_tokens=tokens,
        problems=problems,
        group=group,
    )
    accuracy = "fraction" if task == "countdown" else "all"
    settings = RlSettings(
        rollout, steps=200, learning_rate=1e-6, decay=False, reward=AsyncThinkReward(accuracy=accuracy)
    )
    sampler_settings = {"gpu_memory_utilization": 0.3}
    return Policy(settings, model=None, sampler="vllm", sampler_settings=sampler_settings, pack_tokens=4096)


SFT = Pairs(SftSettings(steps=1_000, learning_rate=1e-4))
COUNTDOWN_SFT = Pairs(SftSettings(steps=1_000, learning_rate=1e-6, batch_rows=128))
MATH_SFT = Pairs(SftSettings(steps=400, learning_rate=2e-6, batch_rows=128))
"""The cold start on pairs. Weights are held in float32: at the paper's learning rates bfloat16 would round every update
away."""

COUNTDOWN = paper("countdown", capacity=2, tokens=2048, problems=64, group=32)
MATH = paper("math", capacity=4, tokens=512, problems=128, group=8)
