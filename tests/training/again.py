"""The metrics of a step once more, from its stored episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orgthink.record.episode import Episode, Origin
from orgthink.record.guard import engine_failed
from orgthink.tasks import task_named
from orgthink.training.marsrl.chain import OutputGroup, Rules, groups_of
from orgthink.training.marsrl.settings import MarsSettings, rollout_metrics
from orgthink.training.scores import score_of


def finished_in_step(episode: Episode) -> list[OutputGroup]:
    """The groups that the step trained on: its weights sampled last for them, and no part of them broke.

    The record also has the outputs from which inputs were made.
    """
    assert episode.step is not None, f"{episode.id} is not an episode of a training"
    newest = str(episode.step - 1)
    return [group for group in groups_of(episode.traces) if version(group) == newest and group.broken is None]


def version(group: OutputGroup) -> str:
    """The newest policy version that sampled for it."""
    sampled = (span for trace in group.outputs for span in trace.spans if span.origin is Origin.SAMPLED)
    return str(max((int(span.policy_version or 0) for span in sampled), default=None))


def measured(settings: Any, episodes: Sequence[Episode]) -> dict[str, Any]:
    """The metrics that are a function of these episodes of a step."""
    if isinstance(settings, MarsSettings):
        rules = Rules(settings.rollout, task_named(settings.rollout.task), settings.reward, settings.seed)
        return rollout_metrics([one for e in episodes for one in rules.judged(e, finished_in_step(e))])
    failed = {episode.problem.id for episode in episodes if engine_failed(episode)}
    episodes = [episode for episode in episodes if episode.problem.id not in failed]
    return settings.measure(episodes, {episode.id: score_of(settings.reward, episode) for episode in episodes})
