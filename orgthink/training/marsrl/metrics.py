"""What the finished groups of a step say, for metrics.jsonl: every stream by itself, and the verifier's judgement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orgthink.grammar.verdict import Verdict
from orgthink.record.episode import StopReason
from orgthink.training.marsrl.chain import FinishedGroup
from orgthink.training.marsrl.streams import ROLES, STREAMS, role_of


def rollout_metrics(finished: Sequence[FinishedGroup]) -> dict[str, Any]:
    """Means over the outputs that finished; `None` where there are none."""
    outputs = [
        (one.group.stream, trace, outcome)
        for one in finished
        for trace, outcome in zip(one.group.outputs, one.outcomes, strict=True)
    ]
    return {
        "reward": _mean([o.reward for _, _, o in outputs]),
        "rewards": {role: _mean([o.reward for s, _, o in outputs if role_of(s) == role]) for role in ROLES},
        "right": {stream: _mean([o.positive for s, _, o in outputs if s == stream]) for stream in STREAMS},
        "tokens": {stream: _mean([trace.steps for s, trace, _ in outputs if s == stream]) for stream in STREAMS},
        "verifier": _judgement([(o.judged, o.report.verdict) for _, _, o in outputs if o.report is not None]),
        "truncated": _mean([trace.stop is not StopReason.DONE for _, trace, _ in outputs]),
        "groups": len(finished),
        "outputs": len(outputs),
        "sampled_tokens": sum(trace.steps for _, trace, _ in outputs),
    }


def _judgement(verdicts: Sequence[tuple[bool | None, Verdict]]) -> dict[str, float | None]:
    """How verdicts fit the truth of what they judged."""
    of_wrong = [verdict for right, verdict in verdicts if not right]
    of_right = [verdict for right, verdict in verdicts if right]
    return {
        "accuracy": _mean([verdict.agrees(bool(right)) for right, verdict in verdicts]),
        "recall": _mean([verdict is Verdict.WRONG for verdict in of_wrong]),
        "false_alarms": _mean([verdict is Verdict.WRONG for verdict in of_right]),
        "unparsed": _mean([verdict is Verdict.UNPARSED for _, verdict in verdicts]),
        "judged_wrong_solutions": _mean([not right for right, _ in verdicts]),
    }


def _mean(values: Sequence[float | bool]) -> float | None:
    return sum(values) / len(values) if values else None
