"""What a training would do, without doing it: its settings, what is yet to be named, and the bounds that follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orgthink.store import plain
from orgthink.training.episodes import RlSettings
from orgthink.training.jobs import Mars, Policy, Reinforced
from orgthink.training.marsrl.schedule import MarsRollout, MarsSettings
from orgthink.training.marsrl.streams import last_stage
from orgthink.training.models import chosen

if TYPE_CHECKING:
    from orgthink.training.recipes import KnownJob


def outlook(job: KnownJob) -> dict[str, Any]:
    """The job as config.json would hold it, and for reinforcement learning its bounds."""
    seen: dict[str, Any] = {"job": plain(job), "unnamed": unnamed(job)}
    if isinstance(job, Mars):
        seen["bounds"] = _of_chains(job.settings)
    elif isinstance(job, Policy):
        seen["bounds"] = _of_episodes(job.settings)
    return seen


def unnamed(job: KnownJob) -> list[str]:
    """Options that a run needs, for what only the user has."""
    return [f"--{name}" for name in ("model", "pairs") if getattr(job, name, "its own") is None]


def require(job: KnownJob) -> None:
    """UserError for what is wrong, as `job.require`, as far as that can be seen without what is unnamed."""
    if not unnamed(job):
        job.require()
        return
    chosen(job.device)
    if isinstance(job, Reinforced):
        job.settings.require(None)


def _of_chains(settings: MarsSettings) -> dict[str, int]:
    """Bounds of MarsRL."""
    plan = settings.rollout
    widths = _groups(plan)
    segments = -(-plan.max_tokens // plan.lengths.segment)
    entering = min(plan.problems, plan.live // plan.group)
    # A chain that is so many ticks old is at that stage at most: stages take a tick or more, one for each segment.
    under_way = sum(widths[min(age, len(widths) - 1)] for age in range(len(widths) * segments))
    return {
        "outputs_of_a_problem": plan.group * sum(widths),
        "outputs_a_step": entering * plan.group * under_way,
        "sampled_tokens_a_step": entering * plan.group * under_way * plan.lengths.segment,
        "oldest_token_in_updates": segments - 1,
        "context": plan.max_input + plan.max_tokens,
        "optimizer_steps_a_step": min(settings.minibatches, entering * under_way),
    }


def _groups(plan: MarsRollout) -> list[int]:
    """Groups of a chain at each stage that is trained, at most."""
    widths = [1]
    while len(widths) <= last_stage(plan.roles):
        widths.append(min(plan.take, widths[-1] * plan.group))
    return widths


def _of_episodes(settings: RlSettings) -> dict[str, int | None]:
    """Bounds of episodes; `None` where nothing but the model ends them."""
    plan = settings.rollout
    episodes, turns = plan.problems * plan.group, plan.limits.budget.turns
    return {
        "episodes_a_step": episodes,
        "sampled_tokens_a_step": None if turns is None else episodes * turns * plan.max_tokens,
        "optimizer_steps_a_step": settings.minibatches,
    }
