"""Settings of the AsyncThink paper (sections 4.2 and 4.3), for a model folder of yours.

The paper names a learning rate for each training and no schedule. Ours: supervised fine-tuning warms up over 150 steps,
then decays to 0 along a cosine, with a weight decay of 0.05; reinforcement learning warms up over 5 steps, then stays
constant.
"""

from __future__ import annotations

from orgthink.evaluate.specs import OrganizationSpec
from orgthink.rewards.asyncthink import AsyncThinkReward
from orgthink.runtime.budget import Limits
from orgthink.training.recipes.jobs import Pairs, Policy
from orgthink.training.rl_settings import RlSettings
from orgthink.training.rollout import Rollout
from orgthink.training.sft import SftSettings

LONGEST = 8192
"""Most tokens of an agent on countdown, over all its segments: the 8K of section 4.5. None is told for mathematics."""


def paper(task: str, rollout: Rollout, steps: int, weight: float = 0.2, format_error: float = -0.5) -> Policy:
    """Reinforcement learning as in the paper, at a learning rate of 1e-6; `weight` is λ and `format_error` is R_FE.

    Ours, because the paper does not tell: warm-up, clip range, no KL term, the mean over tokens, λ, τ, R_FE and the
    most turns of an episode.
    """
    accuracy = "fraction" if task == "countdown" else "all"
    reward = AsyncThinkReward(accuracy=accuracy, weight=weight, format_error=format_error)
    settings = RlSettings(rollout, steps=steps, learning_rate=1e-6, decay=False, reward=reward)
    sampler_settings = {"gpu_memory_utilization": 0.3}
    return Policy(settings, model=None, sampler="vllm", sampler_settings=sampler_settings, pack_tokens=4096)


def organized(task: str, capacity: int, tokens: int, problems: int, group: int, steps: int) -> Policy:
    """AsyncThink. `tokens` is the budget of a worker, and of the organizer up to its next Join, which renews it."""
    organization = OrganizationSpec("asyncthink", {"prompts": "paper"})
    limits = Limits(capacity, LONGEST if task == "countdown" else None, turns=64)
    return paper(task, Rollout(task, organization, limits, tokens, problems=problems, group=group), steps)


def sequential(task: str, tokens: int, problems: int, group: int, steps: int) -> Policy:
    """The baseline: a model that thinks alone, with the same data and the same number of attempts, rewarded for its
    answer only: neither λ R_η nor R_FE. Parallel thinking is several samples of it, two on countdown and four on
    mathematics: `orgthink eval --organizations parallel --capacity 2`, or `4`."""
    organization = OrganizationSpec("sequential", {"prompts": "paper"})
    limits = Limits(1, max_tokens=tokens)
    rollout = Rollout(task, organization, limits, tokens, problems=problems, group=group)
    return paper(task, rollout, steps, weight=0.0, format_error=0.0)


SFT = Pairs(SftSettings(steps=1_000, learning_rate=1e-4))
"""Cold start on pairs of your own."""
COUNTDOWN_SFT = Pairs(SftSettings(steps=1_000, learning_rate=1e-6, batch_rows=128))
"""Cold start on countdown (section 4.2)."""
MATH_SFT = Pairs(SftSettings(steps=400, learning_rate=2e-6, batch_rows=128))
"""Cold start on mathematics (section 4.3). Weights are in float32: bfloat16 would round every update of the paper's
learning rates away."""

COUNTDOWN = organized("countdown", capacity=2, tokens=2048, problems=64, group=32, steps=180)
"""Reinforcement learning on countdown (section 4.2), with two agents."""
COUNTDOWN_SEQUENTIAL = sequential("countdown", tokens=LONGEST, problems=64, group=32, steps=180)
"""The baseline on countdown: a model that thinks alone. The paper names no budget: this one is AsyncThink's cap."""
MATH = organized("math", capacity=4, tokens=512, problems=128, group=8, steps=200)
"""Reinforcement learning on mathematics (section 4.3), with four agents. The number of steps is ours."""
MATH_L1K = sequential("math", tokens=1024, problems=128, group=8, steps=200)
"""The baseline L1K on mathematics (section 4.3): a model that thinks alone, in 1,024 tokens."""
MATH_L2K = sequential("math", tokens=2048, problems=128, group=8, steps=200)
"""The baseline L2K on mathematics (section 4.3): a model that thinks alone, in 2,048 tokens."""
