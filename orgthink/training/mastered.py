"""Dynamic masking of well-mastered positive tokens (UloRL, arXiv 2507.19766, Eq. 9 and 10; section 2.3 of MarsRL).

A token of a right output that is nearly certain already teaches nothing new. Training it further takes the probability
of everything else: entropy collapses. So these tokens are left out while entropy is below a target. They stay in the
denominator of the loss, so that the others weigh what they weighed before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from orgthink.record.episode import Origin, Trace
from orgthink.training.rows import PolicyRow, untrained
from orgthink.util.errors import require_at_least


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
