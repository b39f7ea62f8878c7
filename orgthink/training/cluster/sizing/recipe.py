"""Model, setup and work of a recipe. The work of a step follows from the recipe's budgets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from orgthink.training.cluster.sizing.rollouts import work_of_rollouts
from orgthink.training.cluster.sizing.setup import Setup
from orgthink.training.cluster.sizing.work import PROMPT, Work
from orgthink.training.recipes.jobs import Job, Reinforced
from orgthink.util.errors import UserError

ROW = 2048
"""Default tokens of an output."""

PAPERS = {
    "asyncthink-qwen3-countdown-sft": "qwen3-4b",
    "asyncthink-qwen3-countdown": "qwen3-4b",
    "asyncthink-qwen3-math-sft": "qwen3-4b",
    "asyncthink-qwen3-countdown-sequential": "qwen3-4b",
    "asyncthink-qwen3-math": "qwen3-4b",
    "asyncthink-qwen3-math-sequential-l1k": "qwen3-4b",
    "asyncthink-qwen3-math-sequential-l2k": "qwen3-4b",
    "marsrl-qwen3": "qwen3-30b-a3b",
    "paramanager-qwen3-sft": "qwen3-4b-2507",
    "paramanager-qwen3": "qwen3-4b-2507",
}
"""The model of the paper, by recipe: such a recipe starts from a model folder of the user."""


def model_of(recipe: str, job: Job) -> str:
    """The model that a recipe starts from: its own, or the paper's. A job from scratch names a model of its `shape`.

    UserError if there is none.
    """
    own = getattr(job, "model", None) or getattr(job, "shape", None) or PAPERS.get(recipe)
    if own is None:
        raise UserError(f"{recipe} names no model: add --model, such as qwen3-4b")
    return own


def require_training(recipe: str, job: Job) -> None:
    """UserError for a job that trains no model, such as a search."""
    if not hasattr(job, "model") and not hasattr(job, "shape"):
        raise UserError(f"{recipe} trains no model whose size matters")


def embedded_setup(job: Job | None) -> Setup:
    """One process on one GPU (orgthink/training/embedded.py): arithmetic in the format of the weights, or in mixed
    precision, no checkpoints, and five float32 arrays of logits, entropy included.

    The sampler does not sleep. The local engine decodes on the CPU in float32; its time is estimated as if on the GPU.
    """
    width = 2 if getattr(job, "dtype", "float32") == "bfloat16" else 4
    setup = Setup(sharded=False, held=width, computed=width, checkpointed=False, logits=20, sleeps=False)
    if job is None:
        return setup
    if not isinstance(job, Reinforced):
        return replace(setup, pack=job.settings.batch_tokens, share=0.0)
    loss = job.settings.loss
    return replace(
        setup,
        computed=2 if job.mixed_precision else width,
        pack=job.pack_tokens,
        frozen=int(loss.kl > 0) + int(loss.old != "sampler"),
        reference=width if loss.kl > 0 else 0,
        sampler=4 if job.sampler == "local" else 2,
        share=float(job.sampler_settings.get("gpu_memory_utilization", 0.3)),
    )


def verl_setup(job: Job | None, config: Mapping[str, Any]) -> Setup:
    """The settings of `orgthink train --backend verl` on GPUs (orgthink/scale/verl/launch.py), and the defaults of verl
    0.9.1: float32 weights, bfloat16 arithmetic, checkpoints, no offloading. vLLM has half of the memory and sleeps
    during training. A pack holds the longest possible row.
    """
    if not isinstance(job, Reinforced):
        return Setup()
    loss, held = job.settings.loss, 2 if job.dtype == "bfloat16" else 4
    return Setup(
        held=held,
        pack=max(job.pack_tokens, context_of(job, config) or 0),
        frozen=int(loss.kl > 0) + int(loss.old != "sampler"),
        reference=held if loss.kl > 0 else 0,
        share=float(job.sampler_settings.get("gpu_memory_utilization", 0.5)),
    )


def context_of(job: Reinforced, config: Mapping[str, Any]) -> int | None:
    """Most tokens of a row, by the model's config and the sampler's `max_model_len`; `None` if neither is set."""
    known = (config.get("max_position_embeddings"), job.sampler_settings.get("max_model_len"))
    return min((int(length) for length in known if length is not None), default=None)


def work_of(job: Job | None, config: Mapping[str, Any]) -> Work:
    """Work of a step that uses every budget in full; without a job, 64 problems of 8 short attempts."""
    if job is None:
        return Work(problems=64, group=8, agents=1, concurrent=1, prompt=PROMPT, sampled=ROW)
    if isinstance(job, Reinforced):
        return work_of_rollouts(job.settings, context_of(job, config))
    rows, longest = job.settings.batch_rows, getattr(job, "longest", None) or ROW
    if rows is None:  # as many as make `batch_tokens`
        rows, longest = 1, job.settings.batch_tokens
    return Work(problems=rows, group=1, agents=1, concurrent=0, prompt=0, sampled=longest)


def most_sampled(job: Job) -> int | None:
    """Most tokens that a step samples; `None` without reinforcement learning, or without a bound."""
    return job.settings.bounds()["sampled_tokens_a_step"] if isinstance(job, Reinforced) else None


def frozen_models(job: Job) -> list[str]:
    """Names of the frozen models beside the trained one. Their GPUs are not counted."""
    return [*job.settings.frozen] if isinstance(job, Reinforced) else []
