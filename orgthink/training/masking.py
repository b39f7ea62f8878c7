"""Which sampled tokens are not trained: stale tokens, and tokens that are already mastered.

Staleness: an output in segments continues after weight updates, so its tokens differ in age. If a token is too old, its
importance ratio is too far from 1.

Mastered tokens (UloRL, arXiv 2507.19766, Eq. 9 and 10; section 2.3 of MarsRL): a token of a correct output that is
nearly certain teaches nothing more, and training it makes entropy collapse. Such tokens are masked while entropy is
below a target. They still count in the denominator of the loss, so the weights of the other tokens do not change.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from orgthink.record.episode import Origin, Trace
from orgthink.training.rows import PolicyRow, untrained
from orgthink.util.errors import require_above_zero, require_at_least

Beyond = Literal["drop", "mask", "truncate"]


@dataclass(frozen=True, slots=True)
class Staleness:
    """Largest age of a token, and the treatment of older ones."""

    bound: int = 4
    """A token is stale after more updates of the sampler than this."""
    beyond: Beyond = "truncate"
    """Treatment of stale tokens: drop their group, mask the tokens, or cap their importance weight."""
    cap: float = 2.0
    """Largest importance weight of a stale token."""

    def __post_init__(self) -> None:
        require_at_least(0, self, "bound")
        if self.beyond not in get_args(Beyond):
            raise ValueError(f"beyond is {self.beyond!r}: it must be one of {', '.join(get_args(Beyond))}")
        require_above_zero(self, "cap")


def within(rows: Sequence[PolicyRow], staleness: Staleness) -> list[PolicyRow]:
    """The rows to train on, in order. The loss handles stale tokens that are truncated.

    `drop` removes whole groups: long outputs are the oldest, and without them short ones would be rewarded. `mask`
    removes only rows without any token to train.
    """
    if staleness.beyond == "truncate":
        return list(rows)
    stale = [_stale(row, staleness.bound) for row in rows]
    if staleness.beyond == "drop":
        old = {row.group for row, places in zip(rows, stale, strict=True) if places}
        return [row for row in rows if row.group not in old]
    return [
        untrained(row, places) if places else row
        for row, places in zip(rows, stale, strict=True)
        if not places or len(places) < sum(row.trained)
    ]


def ages(rows: Sequence[PolicyRow]) -> dict[str, float | None]:
    """Mean and largest age of trained tokens in updates, for metrics; `None` without tokens."""
    found = [age for row in rows for age, trained in zip(row.age, row.trained, strict=True) if trained]
    return {"age": sum(found) / len(found) if found else None, "age_max": max(found, default=None)}


def _stale(row: PolicyRow, bound: int) -> set[int]:
    """Indices of the stale trained tokens."""
    return {at for at, (trained, age) in enumerate(zip(row.trained, row.age, strict=True)) if trained and age > bound}


@dataclass(frozen=True, slots=True)
class Mastered:
    """Which tokens are mastered, and when they are masked."""

    entropy: float
    """σ, in nats per token: nothing is masked while the entropy is at least this."""
    probability: float = 0.99
    """τ: a token that was sampled with at least this probability is mastered."""
    of: Literal["sample", "step"] = "sample"
    """Whether the entropy of each output is compared with σ, or that of all tokens of a step."""

    def __post_init__(self) -> None:
        require_at_least(0, self, "entropy")
        if not 0 < self.probability <= 1:
            raise ValueError(f"probability is {self.probability}: it must be above 0 and at most 1")
        if self.of not in ("sample", "step"):
            raise ValueError(f"of is {self.of!r}: it must be sample or step")


def sampled_entropy(traces: Iterable[Trace]) -> float | None:
    """The policy's entropy in nats per token, estimated from its sampled tokens; `None` without log-probabilities.

    Use all traces of a step: groups without an advantage are mostly mastered, so trained rows alone read too high.
    """
    spans = [span for trace in traces for span in trace.spans if span.origin is Origin.SAMPLED]
    drawn = [-p for span in spans for p in span.logprobs or ()]
    return math.fsum(drawn) / len(drawn) if drawn else None


def mask_mastered(rows: Sequence[PolicyRow], settings: Mastered, entropy: float | None) -> list[PolicyRow]:
    """The rows, in order, without their mastered tokens while entropy is low. `entropy` is the step's; `None` is not
    low."""
    return [_without_mastered(row, settings.probability) if _masks(row, settings, entropy) else row for row in rows]


def _masks(row: PolicyRow, settings: Mastered, entropy: float | None) -> bool:
    """Whether a row is correct and entropy is low."""
    if settings.of == "sample":
        drawn = [-p for p, trained in zip(row.logprobs, row.trained, strict=True) if trained]
        entropy = math.fsum(drawn) / len(drawn)
    positive = row.advantage > 0 if row.positive is None else row.positive
    return positive and not row.masked and entropy is not None and entropy < settings.entropy


def _without_mastered(row: PolicyRow, probability: float) -> PolicyRow:
    """The row without mastered tokens. At least its least probable token stays."""
    trained = [at for at, sampled in enumerate(row.trained) if sampled]
    mastered = {at for at in trained if math.exp(row.logprobs[at]) >= probability}
    if len(mastered) == len(trained):
        mastered.discard(min(mastered, key=row.logprobs.__getitem__))
    return replace(untrained(row, mastered), masked=len(mastered)) if mastered else row
