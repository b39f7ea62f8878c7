"""Staleness: what becomes of tokens that weights of many updates ago sampled.

An output that is written in segments goes on after the weights were updated, so its tokens differ in age. Their
log-probabilities are those of the weights that drew them; the importance ratio of a token past the bound strays
too far from 1 to be clipped and still teach anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from orgthink.training.rows import PolicyRow, untrained
from orgthink.util.errors import require_above_zero

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
