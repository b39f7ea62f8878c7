"""Staleness: what becomes of tokens that weights of many updates ago sampled.

An output that is written in segments goes on after the weights were updated, so its tokens differ in age. Their
log-probabilities are those of the weights that drew them; the importance ratio of a token past the bound strays
too far from 1 to be clipped and still teach anything.
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
    """How old a token may be, and what becomes of an older one."""

    bound: int = 4
    """A token is stale after more updates of the sampler than this."""
    beyond: Beyond = "truncate"
    """Its group is left out, or it alone is not trained, or its importance weight is capped instead of clipped."""
    cap: float = 2.0
    """Largest importance weight of a stale token."""

    def __post_init__(self) -> None:
        if not self.bound >= 0:
            raise ValueError(f"bound is {self.bound}: it must be a number of updates from 0 on")
        if self.beyond not in get_args(Beyond):
            raise ValueError(f"beyond is {self.beyond!r}: it must be one of {', '.join(get_args(Beyond))}")
        require_above_zero(self, "cap")


def within(rows: Sequence[PolicyRow], staleness: Staleness) -> list[PolicyRow]:
    """The rows to train on, in order. Stale tokens that are truncated stay: the loss sees to them.

    What is dropped is the whole group: advantages are relative to it, and long outputs are the oldest, so without
    them brevity would be rewarded. What is masked can leave a row with nothing to train; only such a row goes.
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
    """Updates since trained tokens were drawn, on average and at most, for metrics; `None` if there are no tokens."""
    found = [age for row in rows for age, trained in zip(row.age, row.trained, strict=True) if trained]
    return {"age": sum(found) / len(found) if found else None, "age_max": max(found, default=None)}


def _stale(row: PolicyRow, bound: int) -> set[int]:
    """Where its trained tokens are past the bound."""
    return {at for at, (trained, age) in enumerate(zip(row.trained, row.age, strict=True)) if trained and age > bound}


@dataclass(frozen=True, slots=True)
class Mastered:
    """Which tokens are mastered, and when they are left out."""

    entropy: float
    """σ, in nats a token: nothing is left out while the entropy is at least this."""
    probability: float = 0.99
    """τ: a token that was drawn with at least this probability is mastered."""
    of: Literal["sample", "step"] = "sample"
    """Whether the entropy of each output is compared with the target, or that of everything a step sampled."""

    def __post_init__(self) -> None:
        require_at_least(0, self, "entropy")
        if not 0 < self.probability <= 1:
            raise ValueError(f"probability is {self.probability}: it must lie above 0 and be at most 1")
        if self.of not in ("sample", "step"):
            raise ValueError(f"of is {self.of!r}: it must be sample or step")


def sampled_entropy(traces: Iterable[Trace]) -> float | None:
    """The policy's entropy in nats a token, estimated from the tokens it drew; `None` if none has a log-probability.

    To be taken of all traces of a step: groups that teach nothing are mostly mastered, so the rows that are trained
    read too high, and those that are left after masking higher still.
    """
    drawn = [
        -p
        for trace in traces
        for span in trace.spans
        if span.origin is Origin.SAMPLED and span.logprobs is not None
        for p in span.logprobs
    ]
    return math.fsum(drawn) / len(drawn) if drawn else None


def mask_mastered(rows: Sequence[PolicyRow], settings: Mastered, entropy: float | None) -> list[PolicyRow]:
    """The rows, in order, without their mastered tokens while entropy is low. `entropy` is the step's; an unknown one
    is not low."""
    return [_without_mastered(row, settings.probability) if _masks(row, settings, entropy) else row for row in rows]


def _masks(row: PolicyRow, settings: Mastered, entropy: float | None) -> bool:
    """Whether a row is right and entropy is low."""
    if settings.of == "sample":
        drawn = [-p for p, trained in zip(row.logprobs, row.trained, strict=True) if trained]
        entropy = math.fsum(drawn) / len(drawn)
    positive = row.advantage > 0 if row.positive is None else row.positive
    return positive and not row.masked and entropy is not None and entropy < settings.entropy


def _without_mastered(row: PolicyRow, probability: float) -> PolicyRow:
    """The row with at least its least probable token trained."""
    trained = [at for at, sampled in enumerate(row.trained) if sampled]
    mastered = {at for at in trained if math.exp(row.logprobs[at]) >= probability}
    if len(mastered) == len(trained):
        mastered.discard(min(mastered, key=row.logprobs.__getitem__))
    return replace(untrained(row, mastered), masked=len(mastered)) if mastered else row
