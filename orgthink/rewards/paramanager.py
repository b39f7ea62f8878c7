"""The reward of ParaManager (section 3.3): R_task + R_fmt + R_div + R_eff (Eq. 10), of a manager's episode.

As printed it is ungated, so that a wrong but tidy episode earns 3 of 4. The gate and the weights are settings.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from orgthink.measure.orchestration import (
    MANAGER,
    calls_per_round,
    cost,
    managed,
    requested_per_round,
    rounds,
    trajectory_tokens,
    unique_tools,
)
from orgthink.record.episode import Episode
from orgthink.rewards import EpisodeReward, Score
from orgthink.util.errors import UserError, require_above_zero, require_at_least

Gate = Literal["none", "correct"]
"""When the terms other than R_task count: always, or only if R_task is 1."""


@dataclass(frozen=True, slots=True)
class ParaManagerScore(Score):
    """The reward of one episode and its parts, which are neither weighted nor gated."""

    task: float
    """R_task, 0 or 1."""
    format: float
    """R_fmt, 0 to 1."""
    parallel: float
    """R_par, 0 or 1."""
    tools: float
    """R_tool, 0 or 1."""
    length: float
    """R_len, 0 to 1."""
    cost: float
    """R_cost, 0 to 1."""

    @property
    def diversity(self) -> float:
        """R_div (Eq. 13)."""
        return (self.parallel + self.tools) / 2

    @property
    def efficiency(self) -> float:
        """R_eff (Eq. 18)."""
        return (self.length + self.cost) / 2

    def parts(self) -> dict[str, float]:
        """By the names of the metrics."""
        names = ("task", "format", "diversity", "efficiency", "parallel", "tools", "length", "cost")
        return {f"{name}_reward": getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class ParaManagerReward(EpisodeReward):
    """ParaManager's reward (Eq. 10 to 18). The defaults are the paper's."""

    task: float = 1.0
    """Weight of R_task."""
    format: float = 1.0
    """Weight of R_fmt."""
    diversity: float = 1.0
    """Weight of R_div."""
    efficiency: float = 1.0
    """Weight of R_eff."""
    gate: Gate = "none"
    """`correct`: the other terms count only where R_task is 1."""
    theta_par: float = 1.25
    """θ_par: calls a round, on average, from which R_par is earned."""
    count: Literal["requested", "executed"] = "requested"
    """Calls that count for n_t (Eq. 14): all that were written (the paper), or only executed calls, so that calls of
    unknown tools do not earn R_par."""
    theta_tool: int = 3
    """θ_tool: different tools from which R_tool is earned."""
    length_target: int = 12288
    """L_tar in tokens of the manager's context; twice as many earn nothing."""
    cost_target: float = 8.0
    """C_tar in cost units; twice as many earn nothing."""

    def __post_init__(self) -> None:
        require_at_least(0, self, "task", "format", "diversity", "efficiency")
        require_above_zero(self, "theta_par", "theta_tool", "length_target", "cost_target")

    def most_if_wrong(self, required: int) -> float:
        """The largest sum of the other terms."""
        return 0.0 if self.gate == "correct" else self.format + self.diversity + self.efficiency

    def __call__(self, episode: Episode) -> ParaManagerScore:
        """ValueError if the episode is not graded, or its cost not known: an unknown reward is not zero."""
        if episode.grade is None:
            raise ValueError(f"episode {episode.id} is not graded, so it has no reward")
        if not managed(episode):
            raise ValueError(f"episode {episode.id} has no manager, so it has no reward")
        spent = cost(episode)
        if spent is None:
            raise ValueError(f"call costs of episode {episode.id} are missing, so it has no reward")
        replies = [one.reply for one in rounds(episode)]
        per_round = requested_per_round if self.count == "requested" else calls_per_round
        earned = ParaManagerScore(
            total=0.0,
            task=float(episode.grade.all_correct),
            format=fmean(reply.well_formed for reply in replies) if replies else 0.0,
            parallel=float((per_round(episode) or 0.0) >= self.theta_par),
            tools=float(unique_tools(episode) >= self.theta_tool),
            length=_within(trajectory_tokens(episode), self.length_target),
            cost=_within(spent, self.cost_target),
        )
        return replace(earned, total=self._total(earned))

    def require(self, organization: object) -> None:
        if MANAGER not in getattr(organization, "roles", ()):
            name = getattr(organization, "name", type(organization).__name__)
            raise UserError(f"the reward is of what a manager does, and {name} has none: choose another reward.kind")

    def _total(self, earned: ParaManagerScore) -> float:
        """R (Eq. 10), weighted and gated."""
        task = self.task * earned.task
        if self.gate == "correct" and not earned.task:
            return task
        diversity, efficiency = self.diversity * earned.diversity, self.efficiency * earned.efficiency
        return task + self.format * earned.format + diversity + efficiency


def _within(used: float, target: float) -> float:
    """1 up to the target, and from there straight down to 0 at twice the target (Eq. 16 and 17)."""
    return 1.0 if used <= target else max(0.0, (2 * target - used) / target)
