"""Rows of a recorded evaluation for other trainers, with the reward, the credit and the loss weights of a recipe."""

from __future__ import annotations

from collections import Counter

from orgthink.evaluation.grading import grade
from orgthink.evaluation.plan import Evaluation, resolve
from orgthink.measure.accuracy import mixed
from orgthink.record.folder import RunFolder
from orgthink.training.episodes import grouped, whole_groups
from orgthink.training.policy_loss import weighted
from orgthink.training.rl_settings import RlSettings
from orgthink.training.rows import PolicyRow, policy_rows
from orgthink.training.scores import advantages_of, score_of
from orgthink.util.errors import UserError, user_input


def recorded_rows(folder: RunFolder, settings: RlSettings) -> list[PolicyRow]:
    """Weighted rows of all trained traces, problem by problem. Groups of equal rewards and with engine errors are
    left out; so are those whose outcomes are all equal, if the recipe trains on mixed groups only.

    UserError if the run has one attempt a problem, is of another organization or of several models, is not finished, or
    leaves no row.
    """
    plan, rollout = folder.settings("eval", Evaluation), settings.rollout
    wanted, found = rollout.organization.organization, {how.organization for how in plan.organizations.values()}
    if len(plan.organizations) > 1 or found != {wanted}:
        names = ", ".join(plan.organizations)
        raise UserError(f"{folder.path} holds {names}: the recipe is for {wanted} by itself, see --organizations")
    if plan.samples < 2:
        raise UserError(f"{folder.path} has one attempt at each problem, and nothing to compare it with: --samples 8")
    resolved = resolve(plan)
    episodes = whole_groups([grade(one, resolved.task) for one in resolved.in_order(folder.episodes())])
    attempts = Counter(episode.problem.id for episode in episodes)
    if any(count < plan.samples for count in attempts.values()):
        raise UserError(f"{folder.path} is not finished, and half a group is no fair comparison: eval --resume it")
    sampled_by = {
        trace.model for episode in episodes for trace in episode.traces if trace.steps and rollout.trains(trace)
    }
    if len(sampled_by) > 1:
        names = ", ".join(sorted(map(str, sampled_by)))
        raise UserError(f"{folder.path}: {names} sampled what the recipe trains: name the frozen in rollout.models")
    if settings.mixed:
        outcomes = set(mixed(episodes))
        episodes = [episode for episode in episodes if episode.problem.id in outcomes]
    rewards = {episode.id: score_of(settings.reward, episode) for episode in episodes}
    with user_input():
        advantages = advantages_of(settings.credit, grouped(episodes, rewards))
        rewarded = [episode for episode in episodes if episode.id in advantages]
        rows = [row for e in rewarded for row in policy_rows(e, advantages[e.id], rollout.trains)]
    if not rows:
        raise UserError(f"{folder.path} has no group whose attempts differ in reward: there is nothing to train on")
    return weighted(rows, settings.loss.reduction)
