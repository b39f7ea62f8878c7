"""Dynamic masking of well-mastered positive tokens (UloRL, arXiv 2507.19766; section 2.3 of MarsRL).

What was rewarded and is nearly certain already teaches nothing new, and training it further takes the probability of
everything else: entropy collapses. So these tokens are left out while the policy's entropy is below a target.
Masked tokens are not trained, so they leave the denominator of the loss too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orgthink.episode import Origin, Trace
from orgthink.errors import require_at_least
from orgthink.training.rows import PolicyRow, untrained


@dataclass(frozen=True, slots=True)
class Mastered:
    """Which tokens are mastered, and when they are left out."""

    entropy: float
    """Target in nats a token: nothing is left out while the policy's entropy is at least this."""
    probability: float = 0.99
    """A token that was drawn with at least this probability is mastered."""

    def __post_init__(self) -> None:
        require_at_least(0, self, "entropy")
        if not 0 < self.probability <= 1:
            raise ValueError(f"probability is {self.probability}: it must lie above 0 and be at most 1")


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
    """The rows, in order, without their mastered tokens while `entropy` is low; an unknown one is not."""
    if entropy is None or not entropy < settings.entropy:
        return list(rows)
    return [_without_mastered(row, settings.probability) if row.advantage > 0 else row for row in rows]


def _without_mastered(row: PolicyRow, probability: float) -> PolicyRow:
    """The row with at least its least probable token trained."""
    trained = [at for at, sampled in enumerate(row.trained) if sampled]
    mastered = {at for at in trained if math.exp(row.logprobs[at]) >= probability}
    if len(mastered) == len(trained):
        mastered.discard(min(mastered, key=row.logprobs.__getitem__))
    return untrained(row, mastered) if mastered else row
