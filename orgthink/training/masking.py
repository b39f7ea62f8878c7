"""Mastered tokens, which are not trained, and the ages of tokens.

An output in segments continues after weight updates, so its tokens differ in age.

Mastered tokens (UloRL, arXiv 2507.19766, Eq. 9 and 10; section 2.3 of MarsRL): a token of a correct output that is
nearly certain teaches nothing more, and training it makes entropy collapse. Such tokens are masked while entropy is
below a target. They still count in the denominator of the loss, so the weights of the other tokens do not change.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from orgthink.record.episode import Origin, Trace
from orgthink.training.rows import PolicyRow, untrained
from orgthink.util.errors import require_at_least


def ages(rows: Sequence[PolicyRow]) -> dict[str, float | None]:
    """Mean and largest age of trained tokens in updates, for metrics; `None` without tokens."""
    found = [age for row in rows for age, trained in zip(row.age, row.trained, strict=True) if trained]
    return {"age": sum(found) / len(found) if found else None, "age_max": max(found, default=None)}


@dataclass(frozen=True, slots=True)
class Mastered:
    """Which tokens are mastered, and when they are masked."""

    entropy: float
    """σ, in nats per token: nothing of an output is masked unless its entropy is below this."""
    probability: float = 0.99
    """τ: a token that was sampled with at least this probability is mastered."""

    def __post_init__(self) -> None:
        require_at_least(0, self, "entropy")
        if not 0 < self.probability <= 1:
            raise ValueError(f"probability is {self.probability}: it must be above 0 and at most 1")


def sampled_entropy(traces: Iterable[Trace]) -> float | None:
    """The policy's entropy in nats per token, estimated from its sampled tokens; `None` without log-probabilities.

    Use all traces of a step: groups without an advantage are mostly mastered, so trained rows alone read too high.
    """
    spans = [span for trace in traces for span in trace.spans if span.origin is Origin.SAMPLED]
    drawn = [-p for span in spans for p in span.logprobs or ()]
    return math.fsum(drawn) / len(drawn) if drawn else None


def mask_mastered(rows: Sequence[PolicyRow], settings: Mastered) -> list[PolicyRow]:
    """The rows, in order, without the mastered tokens of correct rows whose entropy is low."""
    return [_without_mastered(row, settings.probability) if _masks(row, settings) else row for row in rows]


def _masks(row: PolicyRow, settings: Mastered) -> bool:
    """Whether a row is correct and its entropy is low."""
    drawn = [-p for p, trained in zip(row.logprobs, row.trained, strict=True) if trained]
    positive = row.advantage > 0 if row.positive is None else row.positive
    return positive and not row.masked and math.fsum(drawn) / len(drawn) < settings.entropy


def _without_mastered(row: PolicyRow, probability: float) -> PolicyRow:
    """The row without mastered tokens. At least its least probable token stays."""
    trained = [at for at, sampled in enumerate(row.trained) if sampled]
    mastered = {at for at in trained if math.exp(row.logprobs[at]) >= probability}
    if len(mastered) == len(trained):
        mastered.discard(min(mastered, key=row.logprobs.__getitem__))
    return replace(untrained(row, mastered), masked=len(mastered)) if mastered else row
