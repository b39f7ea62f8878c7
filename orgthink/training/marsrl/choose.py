"""Which outputs of an agent the next one takes (section 3.4 of MarsRL)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal, TypeVar

T = TypeVar("T")

Strategy = Literal["random", "balanced", "adaptive"]
"""Any; as many of reward 1 as of reward 0; or first those that the next agent has most to learn from."""


def choose(
    strategy: Strategy, role: str, candidates: Sequence[T], positive: Sequence[bool], take: int, rng: random.Random
) -> list[T]:
    """At most `take` of the candidates for an agent of `role`; `positive` says which of them were rewarded.

    Adaptive: a verifier first gets wrong solutions, a corrector first findings that are right. Where a strategy
    finds too few of a kind, the others fill up.
    """
    order = rng.sample(range(len(candidates)), len(candidates))
    if strategy != "random":
        first = role == "corrector" if strategy == "adaptive" else rng.random() < 0.5
        liked = [i for i in order if positive[i] == first]
        others = [i for i in order if positive[i] != first]
        half = take if strategy == "adaptive" else take // 2
        order = [*liked[:half], *others, *liked[half:]]
    return [candidates[i] for i in order[:take]]
