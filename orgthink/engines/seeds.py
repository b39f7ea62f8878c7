"""Seeds of a text that is sampled in several requests."""

from __future__ import annotations

GAMMA = 0x9E3779B97F4A7C15
"""Step of splitmix64."""


def advance_seed(seed: int, count: int) -> int:
    """The seed whose first random number is number `count` of this seed. A text sampled in several requests then has
    the same tokens as in one request, on engines whose draws depend only on the seed and the position (`local`)."""
    return (seed + count * GAMMA) % 2**64
