"""MarsRL training settings, and the metrics of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from orgthink.grammar.verdict import Verdict
from orgthink.organizations.prompts import STYLES, prompt, style_named
from orgthink.record.episode import StopReason
from orgthink.rewards import REWARDS, RoleReward
from orgthink.rewards.marsrl import MarsReward
from orgthink.tasks import task_named
from orgthink.tasks.task import endless
from orgthink.training.marsrl.chain import FinishedGroup
from orgthink.training.marsrl.rollout import ROLES, STREAMS, MarsRollout, role_of
from orgthink.training.metrics import mean
from orgthink.training.optimization import Optimization, last_parts
from orgthink.util.errors import UserError, user_input
from orgthink.util.settings import ByKind

AnyRoleReward = Annotated[RoleReward, ByKind(REWARDS, RoleReward)]


@dataclass(frozen=True, slots=True)
class MarsSettings(Optimization):
    """MarsRL training settings."""

    rollout: MarsRollout
    """Problems, budgets and sampling."""
    reward: AnyRoleReward = field(default_factory=MarsReward)
    """Reward of each role."""

    def require(self, context: int | None) -> None:
        plan = self.rollout
        style_named(plan.prompts)
        if context is not None and plan.max_input + plan.max_tokens > context:
            raise UserError(
                f"inputs of {plan.max_input} and outputs of {plan.max_tokens} tokens do not fit the model's context of "
                f"{context}: lower rollout.max_input or rollout.max_tokens"
            )
        problem = next(endless(task_named(plan.task), self.seed))
        with user_input():
            for role in ROLES:
                prompt(plan.prompts, role, problem)

    @property
    def made_for(self) -> Mapping[str, Any]:
        style = {"prompts": self.rollout.prompts} if self.rollout.prompts in tuple(STYLES) else {}
        return {**style, "max_tokens": self.rollout.max_tokens}

    def bounds(self) -> dict[str, int | None]:
        plan, widths = self.rollout, self.rollout.widths
        segments = -(-plan.max_tokens // plan.segment_tokens)
        entering = min(plan.problems, plan.live // plan.group)
        # A stage takes one step or more, at most one for each segment.
        groups = entering * sum(widths[min(age, len(widths) - 1)] for age in range(len(widths) * segments))
        return {
            "outputs_of_a_problem": plan.group * sum(widths),
            "outputs_a_step": groups * plan.group,
            "sampled_tokens_a_step": groups * plan.group * plan.segment_tokens,
            "oldest_token_in_updates": segments - 1,
            "context": plan.max_input + plan.max_tokens,
            "optimizer_steps_a_step": min(self.minibatches, groups),
        }

    def progress_text(self, line: Mapping[str, Any]) -> str:
        rewards = "  ".join(f"{role} {'–' if r is None else f'{r:.3f}'}" for role, r in line["rewards"].items())
        return "  ".join([rewards, f"chains {line['chains']}", *last_parts(line)])


def rollout_metrics(finished: Sequence[FinishedGroup]) -> dict[str, Any]:
    """Means over the finished outputs of a step; `None` without any."""
    outputs = [
        (one.group.stream, trace, outcome)
        for one in finished
        for trace, outcome in zip(one.group.outputs, one.outcomes, strict=True)
    ]
    return {
        "reward": mean(o.reward for _, _, o in outputs),
        "rewards": {role: mean(o.reward for s, _, o in outputs if role_of(s) == role) for role in ROLES},
        "right": {stream: mean(o.positive for s, _, o in outputs if s == stream) for stream in STREAMS},
        "tokens": {stream: mean(trace.steps for s, trace, _ in outputs if s == stream) for stream in STREAMS},
        "verifier": _verdicts([(bool(o.judged), o.report.verdict) for _, _, o in outputs if o.report is not None]),
        "truncated": mean(trace.stop is not StopReason.DONE for _, trace, _ in outputs),
        "groups": len(finished),
        "outputs": len(outputs),
        "sampled_tokens": sum(trace.steps for _, trace, _ in outputs),
    }


def _verdicts(verdicts: Sequence[tuple[bool, Verdict]]) -> dict[str, float | None]:
    """Verdicts compared with whether the judged solution is right."""
    return {
        "accuracy": mean(verdict.agrees(right) for right, verdict in verdicts),
        "recall": mean(verdict is Verdict.WRONG for right, verdict in verdicts if not right),
        "false_alarms": mean(verdict is Verdict.WRONG for right, verdict in verdicts if right),
        "unparsed": mean(verdict is Verdict.UNPARSED for _, verdict in verdicts),
        "judged_wrong_solutions": mean(not right for right, _ in verdicts),
    }
