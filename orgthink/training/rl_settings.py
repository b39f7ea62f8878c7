"""Settings of the reinforcement learning of whole episodes: AsyncThink's and ParaManager's."""

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
from orgthink.util.errors import UserError
from orgthink.util.settings import ByKind

AnyReward = Annotated[EpisodeReward, ByKind(REWARDS, EpisodeReward)]


@dataclass(frozen=True, slots=True)
class RlSettings(Optimization):
    """Settings that determine the result, together with the model."""

    rollout: Rollout
    """Problems, organization and budgets of the rollouts."""
    reward: AnyReward = field(default_factory=AsyncThinkReward)
    """Reward R of an episode."""
    mixed: bool = False
    """Whether only mixed groups are trained on: groups with some, but not only, all correct answers."""

    def __post_init__(self) -> None:
        Optimization.__post_init__(self)
        if self.minibatches > self.rollout.problems:
            raise ValueError(f"{self.rollout.problems} groups cannot be split into {self.minibatches} minibatches")

    def require(self, context: int | None) -> None:
        plan = self.rollout
        plan.require()
        if not plan.roles and plan.models.keys() >= set(plan.made.roles):
            raise UserError("rollout.models has a frozen model for every role, so none is trained: leave one out")
        problems = ProblemStream(self.rollout, self.seed).batch()
        if isinstance(self.reward, EpisodeReward):  # a plain function has no requirements
            self.reward.require(self.rollout.made)
            least = self.credit.imitated_from
            most = self.reward.most_if_wrong(max((problem.required for problem in problems), default=1))
            if least is not None and most is not None and least <= most:
                raise UserError(
                    f"this credit imitates what earns {least:g}, and a wrong answer may earn {most:g}: set "
                    "credit.least above that, lower other parts of the reward (reward.gate=correct, "
                    "reward.weight=0), or set credit.kind=shared"
                )

    @property
    def made_for(self) -> Mapping[str, Any]:
        plan, total = self.rollout, self.rollout.limits.max_tokens
        style = getattr(plan.made, "prompts", None)
        return {
            # What is not installed, such as a file of the user's, may be gone when the model is used.
            **({"prompts": style} if style in tuple(STYLES) else {}),
            **({"capacity": plan.limits.capacity} if plan.limits.capacity > 1 else {}),
            "max_tokens": plan.max_tokens,
            "renew": total is None or total > plan.max_tokens,
        }

    def measure(self, episodes: Sequence[Episode], rewards: Mapping[str, Parts]) -> dict[str, Any]:
        """The metrics of a step. `rewards` are by the episodes' ids."""
        own = surviving_measures(self.rollout.made.measures)
        return rollout_metrics(episodes, rewards) | {name: mean(map(one, episodes)) for name, one in own.items()}

    def bounds(self) -> dict[str, int | None]:
        """The bound of tokens is `None` if no budget limits the turns."""
        plan = self.rollout
        groups, turns = plan.problems, plan.limits.turns
        longest = max([plan.max_tokens, *(model.sampling.max_tokens for model in plan.models.values())])
        return {
            "episodes_a_step": groups * plan.group,
            "sampled_tokens_a_step": None if turns is None else groups * plan.group * turns * longest,
            "optimizer_steps_a_step": self.minibatches,
        }

    def progress_text(self, line: Mapping[str, Any]) -> str:
        own = {name: f"{name} {{:.3g}}" for name in self.rollout.made.measures}
        watched = {**OUTCOME, **getattr(self.reward, "watched", {}), **own, **STRUCTURE}
        parts = [_formatted(form, line[name]) for name, form in watched.items() if name in line]
        return "  ".join([*parts, *last_parts(line)])


def _formatted(form: str, value: float | None) -> str:
    """A metric as text. An unknown value is shown as a dash, not as zero."""
    return f"{form.partition('{')[0]}–" if value is None else form.format(value)
