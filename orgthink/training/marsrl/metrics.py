"""What the finished groups of a step say, for metrics.jsonl: every stream by itself, and the verifier's judgement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from orgthink.episode import Problem, StopReason
from orgthink.grammar.verdict import Verdict
from orgthink.training.marsrl.chain import Group, Outcome
from orgthink.training.marsrl.streams import ROLES, STREAMS, role_of
from orgthink.training.rows import PolicyRow
from orgthink.training.staleness import ages


class Finished(NamedTuple):
    """A group that came to its end."""

    problem: Problem
    """Of its chain."""
    group: Group
    """The outputs."""
    outcomes: list[Outcome]
    """What each turned out to be."""


def rollout_metrics(finished: Sequence[Finished], rows: Sequence[PolicyRow], trained: int) -> dict[str, Any]:
    """Means over the outputs that finished; `None` where there are none.

    `rows` are of `trained` of the groups: the others are of roles that are not trained.
    """
    outputs = [
        (one.group.asked, member, o)
        for one in finished
        for member, o in zip(one.group.members, one.outcomes, strict=True)
    ]
    rewarded = [outcome.reward for _, _, outcome in outputs]
    return {
        "reward": _mean(rewarded),
        "rewards": {role: _mean([o.reward for a, _, o in outputs if role_of(a.stream) == role]) for role in ROLES},
        "right": {stream: _mean([o.positive for a, _, o in outputs if a.stream == stream]) for stream in STREAMS},
        "tokens": {
            stream: _mean([member.trace.steps for a, member, _ in outputs if a.stream == stream]) for stream in STREAMS
        },
        "verifier": _judgement([(a.right, o.report.verdict) for a, _, o in outputs if o.report is not None]),
        "truncated": _mean([member.trace.stop is not StopReason.DONE for _, member, _ in outputs]),
        "groups": len(finished),
        "flat_groups": trained - len({row.group for row in rows}),
        "outputs": len(outputs),
        "sampled_tokens": sum(member.trace.steps for _, member, _ in outputs),
        **ages(rows),
    }


def _judgement(verdicts: Sequence[tuple[bool | None, Verdict]]) -> dict[str, float | None]:
    """How verdicts fit the truth of what they judged."""
    wrong = [verdict for right, verdict in verdicts if not right]
    right = [verdict for right, verdict in verdicts if right]
    return {
        "accuracy": _mean([(v is Verdict.CORRECT) == r and v is not Verdict.UNPARSED for r, v in verdicts]),
        "recall": _mean([verdict is Verdict.WRONG for verdict in wrong]),
        "false_alarms": _mean([verdict is Verdict.WRONG for verdict in right]),
        "unparsed": _mean([verdict is Verdict.UNPARSED for _, verdict in verdicts]),
        "judged_wrong_solutions": _mean([not right for right, _ in verdicts]),
    }


def _mean(values: Sequence[float | bool]) -> float | None:
    return sum(values) / len(values) if values else None
