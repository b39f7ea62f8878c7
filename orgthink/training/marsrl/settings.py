"""What decides the result of MarsRL, beside the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from orgthink.credit.shared import Normalise
from orgthink.errors import UserError, user_input
from orgthink.organizations.prompts import prompt, style_named
from orgthink.rewards.marsrl import MarsReward
from orgthink.tasks import task_named
from orgthink.training.marsrl.choose import Strategy
from orgthink.training.marsrl.schedule import Chains
from orgthink.training.marsrl.segment import Lengths
from orgthink.training.marsrl.streams import ROLES, Role, last_stage
from orgthink.training.rl import Optimization, took


@dataclass(frozen=True, slots=True)
class MarsRollout:
    """What is attempted, by whom, in which order."""

    task: str
    """Name of the task."""
    prompts: str = "paper"
    """Prompt style."""
    max_tokens: int = 512
    """Tokens of an output, the thinking included."""
    max_input: int = 512
    """Tokens of an input; longer ones are not handed on, and longer problems are passed over."""
    segment: int | None = None
    """Tokens that are decoded at a tick of the pipeline; `None`: all of an output."""
    temperature: float = 1.0
    """Of the sampling; nothing else truncates it, so importance ratios are unbiased."""
    problems: int = 8
    """New problems a step."""
    group: int = 8
    """G: outputs for one input."""
    take: int = 2
    """Outputs of an agent that the next one takes."""
    strategy: Strategy = "adaptive"
    """Which of them."""
    schedule: Literal["pipeline", "whole"] = "pipeline"
    """Whether groups are trained on as they finish, or chains when they have come to their end."""
    live: int = 4096
    """No problem is begun while as many outputs are under way: derived groups pile up."""
    roles: tuple[Role, ...] = ROLES
    """Who is trained: all (MarsRL), the solver (MarsRL-S, which is UloRL), verifier and corrector (MarsRL-VC)."""

    def __post_init__(self) -> None:
        for name in ("max_tokens", "max_input", "problems", "take"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least 1")
        if self.segment is not None and not 1 <= self.segment <= self.max_tokens:
            raise ValueError(f"segment is {self.segment}: it must be from 1 to max_tokens, {self.max_tokens}")
        if self.schedule == "whole" and self.segment is not None:
            raise ValueError("segment is of the pipeline: whole trajectories are decoded in one go")
        if self.group < 2:
            raise ValueError(f"group is {self.group}: an advantage is relative to others, so it takes at least 2")
        if self.strategy == "balanced" and self.take % 2:
            raise ValueError(f"take is {self.take}: balanced sampling takes as many right as wrong, so an even number")
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature is {self.temperature}: training samples, so it must be above 0")
        if self.live < self.group:
            raise ValueError(f"live is {self.live}: not even one group of {self.group} would fit")
        if not self.roles or len(set(self.roles)) < len(self.roles):
            raise ValueError(f"roles is {list(self.roles)}: name one or more of {', '.join(ROLES)}, each once")

    @property
    def lengths(self) -> Lengths:
        return Lengths(self.max_tokens, self.segment or self.max_tokens, self.temperature)

    @property
    def widths(self) -> list[int]:
        """Groups of a chain at each stage that is trained, at most."""
        widths = [1]
        while len(widths) <= last_stage(self.roles):
            widths.append(min(self.take, widths[-1] * self.group))
        return widths


@dataclass(frozen=True, slots=True)
class MarsSettings(Optimization):
    """What decides the result of MarsRL, beside the model."""

    rollout: MarsRollout
    """What is attempted."""
    reward: MarsReward = field(default_factory=MarsReward)
    """Of each role."""
    normalise: Normalise = "std"
    """Whether advantages are divided by their group's standard deviation."""

    def require(self, context: int | None) -> None:
        plan = self.rollout
        style_named(plan.prompts)
        if context is not None and plan.max_input + plan.max_tokens > context:
            raise UserError(
                f"inputs of {plan.max_input} and outputs of {plan.max_tokens} tokens do not fit the model's context of "
                f"{context}: lower rollout.max_input or rollout.max_tokens"
            )
        problem = next(task_named(plan.task).problems("train", self.seed))
        with user_input():
            for role in ROLES:
                prompt(plan.prompts, role, problem)

    @property
    def temperature(self) -> float:
        return self.rollout.temperature

    def source(self) -> Chains:
        return Chains(self)

    def bounds(self) -> dict[str, int]:
        plan, widths = self.rollout, self.rollout.widths
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
            "optimizer_steps_a_step": min(self.minibatches, entering * under_way),
        }

    def told(self, line: Mapping[str, Any]) -> str:
        rewards = "  ".join(f"{role} {'–' if r is None else f'{r:.3f}'}" for role, r in line["rewards"].items())
        return f"{rewards}  chains {line['chains']}  {took(line):.0f} s"
