"""Whole episodes as rows: organizer–worker policy optimization (section 3.2 of AsyncThink).

A step attempts each of its problems G times with the organization that is trained, rewards every episode, and gives
all its sampled tokens one advantage relative to its group.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orgthink.credit.shared import Normalise, credit
from orgthink.engines.engine import Engine
from orgthink.episode import Episode, FormatError, Origin, Problem
from orgthink.errors import UserError, user_input
from orgthink.evaluate import broken, grade, trouble
from orgthink.measure.accuracy import all_correct
from orgthink.measure.concurrency import concurrency
from orgthink.measure.latency import critical_path
from orgthink.measure.summary import has_format_error
from orgthink.measure.usage import forks, sampled_tokens
from orgthink.rewards.asyncthink import AsyncThinkReward, Reward
from orgthink.tasks import task_named
from orgthink.training.mastered import sampled_entropy
from orgthink.training.rl import Batch, Clock, Optimization
from orgthink.training.rollout import Rollout, batches_of_problems, roll_out
from orgthink.training.rows import policy_rows


@dataclass(frozen=True, slots=True)
class RlSettings(Optimization):
    """What decides the result, beside the model."""

    rollout: Rollout
    """What is attempted."""
    reward: AsyncThinkReward = field(default_factory=AsyncThinkReward)
    """R of an episode."""
    normalise: Normalise = "std"
    """Whether advantages are divided by their group's standard deviation."""
    shuffled: bool = False
    """Rewards are dealt out at random within each group: a control, which must not learn."""

    def __post_init__(self) -> None:
        Optimization.__post_init__(self)
        if self.minibatches > self.rollout.problems:
            raise ValueError(f"{self.rollout.problems} groups cannot be cut into {self.minibatches} minibatches")

    def require(self, context: int | None) -> None:
        self.rollout.organization.named(self.rollout.organization.organization)
        next(task_named(self.rollout.task).problems("train", self.seed))

    def source(self) -> Episodes:
        return Episodes(self)


class Episodes:
    """Rows of the episodes of a step; nothing is kept between steps."""

    def __init__(self, settings: RlSettings) -> None:
        self._settings = settings
        self._problems: Iterator[list[Problem]] = batches_of_problems(settings.rollout, settings.seed)

    async def collect(self, sampler: Engine, step: int, clock: Clock) -> Batch:
        settings = self._settings
        seed = random.Random(f"{settings.seed}/{step}").getrandbits(31)
        problems = next(self._problems)
        clock.lap("problems")
        attempted = await roll_out(settings.rollout, problems, sampler, seed)
        clock.lap("rollout")
        episodes = whole_groups(attempted, settings.rollout.task)
        rewards = {episode.id: settings.reward(episode) for episode in episodes}
        groups = grouped(episodes, rewards, random.Random(seed) if settings.shuffled else None)
        require_version(episodes, str(step))
        with user_input():
            advantages = credit(groups, settings.normalise)
            rows = [row for e in episodes if e.id in advantages for row in policy_rows(e, advantages[e.id])]
        kept = {episode.problem.id for episode in episodes if episode.id in advantages}
        metrics = {
            **rollout_metrics(episodes, rewards),
            "groups": len(problems),
            "broken_groups": len(problems) - len(groups),
            "flat_groups": len(groups) - len(kept),
        }
        return Batch(rows, metrics, sampled_entropy(trace for episode in episodes for trace in episode.traces))

    def save(self, folder: Path) -> None:
        """Nothing: problems and seeds follow from the step."""

    def load(self, folder: Path, step: int) -> None:
        self._problems = batches_of_problems(self._settings.rollout, self._settings.seed, step)


def whole_groups(episodes: Sequence[Episode], task: str) -> list[Episode]:
    """Graded episodes of the groups in which the engine broke none: half a group is no fair comparison.

    UserError if it broke more than half of the groups.
    """
    failed = {episode.problem.id: episode for episode in episodes if broken(episode)}
    if 2 * len(failed) > len({episode.problem.id for episode in episodes}):
        one = next(iter(failed.values()))
        raise UserError(f"{len(failed)} groups broke, such as episode {one.id} ({trouble(one)}): see to the sampler")
    return [grade(episode, task_named(task)) for episode in episodes if episode.problem.id not in failed]


def require_version(episodes: Sequence[Episode], version: str) -> None:
    """UserError that names the first trace that other weights sampled than the newest."""
    for episode in episodes:
        for trace in episode.traces:
            for span in trace.spans:
                if span.origin is Origin.SAMPLED and span.policy_version != version:
                    raise UserError(
                        f"episode {episode.id}, {trace.agent}: sampled by version {span.policy_version}, not by "
                        f"{version}: the sampler did not take the new weights"
                    )


def grouped(
    episodes: Sequence[Episode], rewards: Mapping[str, Reward], shuffle: random.Random | None = None
) -> dict[str, dict[str, float]]:
    """Problem → episode → R. With `shuffle`, the rewards of a group are dealt out at random."""
    groups: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for episode in episodes:
        groups[episode.problem.id][episode.id] = rewards[episode.id].total
    if shuffle is not None:
        for group in groups.values():
            dealt = shuffle.sample(list(group.values()), len(group))
            group.update(zip(group, dealt, strict=True))
    return dict(groups)


def rollout_metrics(episodes: Sequence[Episode], rewards: Mapping[str, Reward]) -> dict[str, Any]:
    """What a step's episodes say on average."""

    def mean(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known else None

    made = [{fault.kind for fault in episode.format_faults} for episode in episodes]
    return {
        "reward": mean([reward.total for reward in rewards.values()]),
        "accuracy": mean([reward.accuracy for reward in rewards.values()]),
        "all_correct": mean([all_correct(episode) for episode in episodes]),
        "concurrency_reward": mean([reward.concurrency for reward in rewards.values()]),
        "penalised": mean([reward.format_error for reward in rewards.values()]),
        "format_error_rate": mean([has_format_error(episode) for episode in episodes]),
        "format_errors": {kind.value: mean([kind in kinds for kinds in made]) for kind in FormatError},
        "concurrency_pool": mean([concurrency(episode) for episode in episodes]),
        "critical_path_steps": mean([critical_path(episode) for episode in episodes]),
        "forks": mean([forks(episode) for episode in episodes]),
        "sampled_tokens": mean([sampled_tokens(episode) for episode in episodes]),
    }
