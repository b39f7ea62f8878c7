"""Seeds of what is sampled in parts."""

from __future__ import annotations

GAMMA = 0x9E3779B97F4A7C15
"""Step of splitmix64."""


def ahead(seed: int, count: int) -> int:
    """The seed whose first number is the `count`-th of this one: what was sampled in parts draws as if in one go, on
    engines where a draw depends on the seed and the number of tokens before (`local`)."""
    return (seed + count * GAMMA) % 2**64
