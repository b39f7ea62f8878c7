"""What a step of rollouts asks for, by the budgets of its recipe."""

from __future__ import annotations

from typing import Any

from orgthink.scale.sizing.work import PROMPT, Work
from orgthink.training.episodes import RlSettings
from orgthink.training.marsrl.settings import MarsSettings


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
        organization: Any = plan.made
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
