"""Work of a step of rollouts, by the budgets of its settings."""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from typing import Any

from orgthink.training.cluster.sizing.work import PROMPT, Work
from orgthink.training.marsrl.settings import MarsSettings
from orgthink.training.rl_settings import RlSettings
from orgthink.util.errors import UserError


@singledispatch
def work_of_rollouts(settings: object, context: int | None) -> Work:
    """Work of a step that uses every budget in full; `context` is the most tokens the model reads.

    Other kinds of training register a function for their settings. UserError for settings without one.
    """
    raise UserError(f"the work of a step of {type(settings).__name__} is not known")


@work_of_rollouts.register
def _work_of_episodes(settings: RlSettings, context: int | None) -> Work:
    """One wave of c − 1 workers, each forked once and joined once. If a Join renews the organizer's budget, it samples
    c times as much as a worker, at most what an agent may. What the workers return, at most `max_tokens` each, is
    injected.

    If only named roles are trained, such as a manager, an attempt has one sequence, and the results of its tools fill
    the context. The further problems of `redraw` count as if they were always drawn.
    """
    plan = settings.rollout
    attempts = settings.bounds()["episodes_a_step"] or 0
    tokens, c = plan.max_tokens, 1 if plan.roles else plan.limits.capacity
    own = min(tokens, plan.limits.max_tokens or tokens)
    organizer = own * c if plan.limits.max_tokens is None else min(own * c, plan.limits.max_tokens)
    injected = (c - 1) * own // c
    prompt = PROMPT if context is None else min(PROMPT, context // 4)  # a small model's prompts are short
    if plan.roles:
        organization: Any = plan.made
        rounds, calls, answer = (getattr(organization, name, 1) for name in ("rounds", "calls", "response_tokens"))
        free_tokens = (context or 2**63) - prompt
        if plan.limits.max_tokens is None:  # a reply a round, and the answer
            organizer = min(free_tokens, own * (rounds + 1))
        injected = max(0, min(free_tokens - organizer, rounds * calls * answer))
    sampled = (organizer + (c - 1) * own) // c
    chain = (organizer + own) / sampled if c > 1 else 1.0
    longest = prompt + organizer + (injected if plan.roles else (c - 1) * own)
    return Work(attempts // plan.group, plan.group, c, c, prompt, sampled, injected, chain, longest)


@work_of_rollouts.register
def _work_of_chains(settings: MarsSettings, context: int | None) -> Work:
    """All possible outputs of a problem, each of full length after an input of full length. Live chains decode
    concurrently, one segment of each output per step; a queue is taken for such a pipeline."""
    settings = replace(settings, rollout=replace(settings.rollout, schedule="pipeline"))
    plan, bounds = settings.rollout, settings.bounds()
    attempts = plan.problems * plan.group
    segments = -(-plan.max_tokens // plan.segment_tokens)
    return Work(
        problems=plan.problems,
        group=plan.group,
        agents=(bounds["outputs_of_a_problem"] or 0) // plan.group,
        concurrent=min(bounds["outputs_a_step"] or 0, plan.live) / attempts,
        prompt=plan.max_input,
        sampled=plan.max_tokens,
        chain=1 / segments,
        longest=bounds["context"] or 0,
        segments=segments,
    )
