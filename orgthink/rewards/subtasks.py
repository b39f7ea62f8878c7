"""A reward for the attempt and one for each agent, for credit by agent such as RAO's (arXiv 2605.06639).

The root earns the grade of the answer. A forked agent earns 1 if what it returned is right by itself: if the task's
grader finds a right solution in it, of the whole problem or of one of its parts. RAO's tasks grade every subtask, or a
model judges it; a task here grades its own problems only, so that a subtask whose result is no solution, such as an
intermediate sum, earns 0. Where workers do such work, credit that is shared by an episode is the better one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from orgthink.record.episode import Episode, Status, Trace
from orgthink.rewards import EpisodeReward, Score
from orgthink.tasks import task_of


@dataclass(frozen=True, slots=True)
class SubtaskScore(Score):
    """The reward of one episode and of its agents."""

    own: Mapping[str, float] = field(default_factory=dict)
    """Reward of each agent with a model, by name."""

    def of_agents(self) -> Mapping[str, float]:
        return self.own


@dataclass(frozen=True, slots=True)
class SubtaskReward(EpisodeReward):
    """The root's answer and what each forked agent returned, each by itself."""

    by_agent: ClassVar[bool] = True

    def __call__(self, episode: Episode) -> SubtaskScore:
        """ValueError if the episode is not graded."""
        if episode.grade is None:
            raise ValueError(f"episode {episode.id} is not graded, so it has no reward")
        total = episode.grade.score
        forked = [trace for trace in episode.traces[1:] if trace.model is not None]
        own = {trace.agent: _own(episode, trace) for trace in forked}
        return SubtaskScore(total, {episode.root.agent: total, **own})


def _own(episode: Episode, trace: Trace) -> float:
    task = task_of(episode.problem)
    if task is None or trace.status is not Status.OK or not trace.returned:
        return 0.0
    return float(task.grade(episode.problem, trace.returned).correct > 0)
