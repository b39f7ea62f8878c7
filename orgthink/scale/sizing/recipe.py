"""What a recipe says about its training: the model, the setup, and the work of a step by its budgets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from orgthink.errors import UserError
from orgthink.recipes.jobs import Job, Mars, Policy, Reinforced
from orgthink.scale.sizing.setup import Setup
from orgthink.scale.sizing.work import Work
from orgthink.training.episodes import RlSettings
from orgthink.training.marsrl.settings import MarsSettings

PROMPT = 512
"""Tokens of a prompt where nothing tells: the papers' templates have some 25 to 600, and the problem comes on top."""
ROW = 2048
"""Tokens of an output where nothing tells."""


PAPERS = {
    "asyncthink-qwen3-countdown-sft": "qwen3-4b",
    "asyncthink-qwen3-countdown": "qwen3-4b",
    "asyncthink-qwen3-math-sft": "qwen3-4b",
    "asyncthink-qwen3-math": "qwen3-4b",
    "marsrl-qwen3": "qwen3-30b-a3b",
    "paramanager-qwen3-sft": "qwen3-4b-2507",
    "paramanager-qwen3": "qwen3-4b-2507",
}
"""What a paper trained, for its recipe: the recipe itself starts from a model folder of yours."""


def model_of(recipe: str, job: Job) -> str:
    """The model that a recipe starts from: its own, or the paper's. A job from scratch names a model of its `shape`.

    UserError if none of these tells.
    """
    own = getattr(job, "model", None) or getattr(job, "shape", None) or PAPERS.get(recipe)
    if own is None:
        raise UserError(f"{recipe} starts from a model of yours: name it with --model, such as qwen3-4b")
    return own


def embedded_setup(job: Job | None) -> Setup:
    """One process, one GPU (orgthink/training/backend.py): everything in the width in which the weights are held, every
    layer kept for the backward, and five arrays of float32 logits at once, entropy included.

    The sampler does not sleep. The local one decodes on the CPU, in float32; its times are those of vLLM's place.
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
        pack=job.pack_tokens,
        frozen=int(loss.kl > 0) + int(loss.old == "trainer"),
        reference=width if loss.kl > 0 else 0,
        sampler=4 if job.sampler == "local" else 2,
        share=float(job.sampler_settings.get("gpu_memory_utilization", 0.3)),
    )


def verl_setup(job: Job | None, config: Mapping[str, Any]) -> Setup:
    """As `orgthink train --backend verl` sets it up on GPUs (orgthink/scale/verl/launch.py), and otherwise as verl is
    unless told (0.9.1): float32 weights, bfloat16 arithmetic, checkpointed, no offloading; vLLM beside it with half of
    the memory, asleep while the trainer works. A pack holds the longest row that there can be.
    """
    if not isinstance(job, Reinforced):
        return Setup()
    loss, held = job.settings.loss, 2 if job.dtype == "bfloat16" else 4
    return Setup(
        held=held,
        pack=max(job.pack_tokens, context_of(job, config) or 0),
        frozen=int(loss.kl > 0) + int(loss.old == "trainer"),
        reference=held if loss.kl > 0 else 0,
        share=float(job.sampler_settings.get("gpu_memory_utilization", 0.5)),
    )


def context_of(job: Reinforced, config: Mapping[str, Any]) -> int | None:
    """Most tokens of a row: what the model reads, or what its servers are told to. `None` if neither tells."""
    known = (config.get("max_position_embeddings"), job.sampler_settings.get("max_model_len"))
    return min((int(length) for length in known if length is not None), default=None)


def work_of(job: Job | None, config: Mapping[str, Any]) -> Work:
    """What a step of a job asks for, if every budget is used up; without a job, 64 problems of 8 short attempts."""
    match job:
        case None:
            return Work(problems=64, group=8, agents=1, at_once=1, prompt=PROMPT, sampled=ROW)
        case Policy():
            return work_of_episodes(job.settings, context_of(job, config))
        case Mars():
            return work_of_chains(job.settings)
        case _:
            rows, longest = job.settings.batch_rows, getattr(job, "longest", None) or ROW
            if rows is None:  # as many as make `batch_tokens`
                rows, longest = 1, job.settings.batch_tokens
            return Work(problems=rows, group=1, agents=1, at_once=0, prompt=0, sampled=longest)


def work_of_episodes(settings: RlSettings, context: int | None) -> Work:
    """One wave: c − 1 workers, each forked once and joined once. An organizer whose budget a Join renews samples c
    times as much as a worker, and is told what the workers return, `max_tokens` of each at most.

    Where only named roles are trained, such as a manager, an attempt has one sequence, and what its tools answer fills
    the context. `redraw` draws further problems: they count as if they were always drawn.
    """
    plan = settings.rollout
    attempts = settings.bounds()["episodes_a_step"] or 0
    tokens, c = plan.max_tokens, 1 if plan.roles else plan.limits.capacity
    own = min(tokens, plan.limits.agent_tokens or tokens)
    organizer = own * c if plan.limits.agent_tokens is None else own
    injected = (c - 1) * own // c
    prompt = PROMPT if context is None else min(PROMPT, context // 4)  # a small model's prompts are short
    if plan.roles:
        organization: Any = plan.organization.named(plan.organization.organization)
        rounds, calls, answer = (getattr(organization, name, 1) for name in ("rounds", "calls", "response_tokens"))
        room = (context or 2**63) - prompt
        if plan.limits.agent_tokens is None:  # a reply a round, and the answer
            organizer = min(room, own * (rounds + 1))
        injected = max(0, min(room - organizer, rounds * calls * answer))
    sampled = (organizer + (c - 1) * own) // c
    chain = (organizer + own) / sampled if c > 1 else 1.0
    longest = prompt + organizer + (injected if plan.roles else (c - 1) * own)
    return Work(attempts // plan.group, plan.group, c, c, prompt, sampled, injected, chain, longest)


def work_of_chains(settings: MarsSettings) -> Work:
    """Every output that a problem can have, each of full length, after an input of full length; those under way are
    decoded at once, a segment of each in a step."""
    plan, bounds = settings.rollout, settings.bounds()
    attempts = plan.problems * plan.group
    segments = bounds["oldest_token_in_updates"] + 1
    return Work(
        problems=plan.problems,
        group=plan.group,
        agents=bounds["outputs_of_a_problem"] // plan.group,
        at_once=min(bounds["outputs_a_step"], plan.live) / attempts,
        prompt=plan.max_input,
        sampled=plan.max_tokens,
        chain=1 / segments,
        longest=bounds["context"],
        segments=segments,
    )


def most_sampled(job: Job) -> int | None:
    """Tokens of a step if every turn used its budget; `None` without reinforcement learning, or without a bound."""
    return job.settings.bounds()["sampled_tokens_a_step"] if isinstance(job, Reinforced) else None


def frozen_models(job: Job) -> list[str]:
    """Models beside the trained one, by the names that the recipe gives them; their GPUs are not counted."""
    return [*getattr(getattr(job.settings, "rollout", None), "models", {})]
