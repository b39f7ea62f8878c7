"""Settings of trainings with one reward per episode, and of their reinforcement learning (AsyncThink, ParaManager)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from orgthink.measure.summary import surviving_measures
from orgthink.organizations.prompts import STYLES
from orgthink.record.episode import Episode
from orgthink.rewards import REWARDS, EpisodeReward
from orgthink.rewards.asyncthink import AsyncThinkReward
from orgthink.training.metrics import OUTCOME, STRUCTURE, mean, rollout_metrics
from orgthink.training.optimization import Optimization, last_parts
from orgthink.training.rollout import ProblemStream, Rollout
from orgthink.training.scores import Parts
from orgthink.util.errors import UserError, require_above_zero, require_at_least
from orgthink.util.settings import ByKind

AnyReward = Annotated[EpisodeReward, ByKind(REWARDS, EpisodeReward)]


class OfEpisodes:
    """What settings with a `rollout`, a `reward` of each episode and a `seed` have in common."""

    __slots__ = ()

    def require(self: Any, context: int | None) -> None:
        """UserError if something that the rollouts or the reward need is missing."""
        plan = self.rollout
        plan.require()
        if not plan.roles and plan.models.keys() >= set(plan.made.roles):
            raise UserError("rollout.models has a frozen model for every role, so none is trained: leave one out")
        ProblemStream(plan, self.seed).batch()
        if isinstance(self.reward, EpisodeReward):  # a plain function has no requirements
            self.reward.require(plan.made)

    @property
    def made_for(self: Any) -> Mapping[str, Any]:
        """Entries of the trained model's orgthink.json."""
        plan, total = self.rollout, self.rollout.limits.max_tokens
        style = getattr(plan.made, "prompts", None)
        return {
            # What is not installed, such as a file of the user's, may be gone when the model is used.
            **({"prompts": style} if style in tuple(STYLES) else {}),
            **({"capacity": plan.limits.capacity} if plan.limits.capacity > 1 else {}),
            "max_tokens": plan.max_tokens,
            "renew": total is None or total > plan.max_tokens,
        }

    def measure(self: Any, episodes: Sequence[Episode], rewards: Mapping[str, Parts]) -> dict[str, Any]:
        """The metrics of a step. `rewards` are by the episodes' ids."""
        own = surviving_measures(self.rollout.made.measures)
        return rollout_metrics(episodes, rewards) | {name: mean(map(one, episodes)) for name, one in own.items()}

    def bounds(self: Any) -> dict[str, int | None]:
        """Upper bounds for a step. That of tokens is `None` if no budget limits the turns."""
        plan = self.rollout
        episodes, turns = plan.problems * plan.group, plan.limits.turns
        longest = max([plan.max_tokens, *(model.sampling.max_tokens for model in plan.models.values())])
        tokens = None if turns is None else episodes * turns * longest
        return {"episodes_a_step": episodes, "sampled_tokens_a_step": tokens}

    def progress_text(self: Any, line: Mapping[str, Any]) -> str:
        """The most important metrics of a step, as one line for the user."""
        own = {name: f"{name} {{:.3g}}" for name in self.rollout.made.measures}
        watched = {**OUTCOME, **getattr(self.reward, "watched", {}), **own, **STRUCTURE}
        parts = [  # an unknown value is shown as a dash, not as zero
            f"{form.partition('{')[0]}–" if line[name] is None else form.format(line[name])
            for name, form in watched.items()
            if name in line
        ]
        return "  ".join([*parts, *last_parts(line)])


@dataclass(frozen=True, slots=True)
class RlSettings(OfEpisodes, Optimization):
    """Settings that determine the result, together with the model."""

    rollout: Rollout
    """Problems, organization and budgets of the rollouts."""
    reward: AnyReward = field(default_factory=AsyncThinkReward)
    """Reward R of an episode."""
    mixed: bool = False
    """Whether only mixed groups are trained on: groups with some, but not only, all correct answers."""

    def __post_init__(self) -> None:
        Optimization.__post_init__(self)
        require_at_least(2, self.rollout, "group")  # an advantage is relative to other attempts
        require_above_zero(self.rollout, "temperature")
        if self.minibatches > self.rollout.problems:
            raise ValueError(f"{self.rollout.problems} groups cannot be split into {self.minibatches} minibatches")

    def require(self, context: int | None) -> None:
        OfEpisodes.require(self, context)
        if (least := self.credit.imitated_from) is None or not isinstance(self.reward, EpisodeReward):
            return
        problems = ProblemStream(self.rollout, self.seed).batch()
        most = self.reward.most_if_wrong(max((problem.required for problem in problems), default=1))
        if most is not None and least <= most:
            raise UserError(
                f"this credit imitates what earns {least:g}, and a wrong answer may earn {most:g}: set "
                "credit.least above that, lower other parts of the reward (reward.gate=correct, "
                "reward.weight=0), or set credit.kind=shared"
            )

    def bounds(self) -> dict[str, int | None]:
        return OfEpisodes.bounds(self) | {"optimizer_steps_a_step": self.minibatches}
