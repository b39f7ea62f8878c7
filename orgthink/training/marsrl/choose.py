"""Which outputs of an agent the next one takes (section 3.4 of MarsRL)."""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from itertools import chain
from typing import Literal, TypeVar

T = TypeVar("T", bound=Hashable)

Strategy = Literal["random", "balanced", "adaptive"]
"""Any; as many of reward 1 as of reward 0; or first those that the next agent has most to learn from."""


def choose(
    strategy: Strategy, role: str, outputs: Sequence[T], positive: Sequence[bool], take: int, rng: random.Random
) -> list[T]:
    """At most `take` different outputs for an agent of `role`; `positive` says which of them were rewarded.

    An output that was made often is as much likelier to be drawn, but it is taken once. Adaptive: a verifier first
    gets wrong solutions, a corrector first findings that are right. Where a strategy finds too few of a kind, the
    others fill up.
    """
    order = rng.sample(range(len(outputs)), len(outputs))
    if strategy == "random":
        return list(dict.fromkeys(outputs[i] for i in order))[:take]
    first = role == "corrector" if strategy == "adaptive" else rng.random() < 0.5
    liked, others = (
        list(dict.fromkeys(outputs[i] for i in order if positive[i] == kind)) for kind in (first, not first)
    )
    if strategy == "adaptive":
        return [*liked, *others][:take]
    short = min(len(liked), len(others))
    return [*chain.from_iterable(zip(liked, others, strict=False)), *liked[short:], *others[short:]][:take]
