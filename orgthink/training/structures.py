"""Random thinking structures (section 3.1 of AsyncThink): sequences of organizer actions to imitate.

Left alone, a teacher writes two shapes only; random sequences keep the student able to try others.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One action of an organizer over parts of the work."""

    action: str
    """`think`, `fork` or `join`."""
    key: str = ""
    """Of the fork or join."""
    parts: tuple[str, ...] = ()
    """What is thought about or given away."""


def random_structure(rng: random.Random, parts: Sequence[str], capacity: int, largest_fork: int = 2) -> list[Step]:
    """A valid sequence in which every part is thought about or forked, and every fork is joined.

    Keys are the lowest free ones; no more than `capacity - 1` are taken at a time.
    """
    left = list(parts)
    active: list[str] = []
    steps: list[Step] = []
    while left or active:
        choices = ["think"] * bool(left) + ["join"] * bool(active)
        if left and len(active) < capacity - 1:
            choices += ["fork", "fork"]
        match rng.choice(choices):
            case "think":
                steps.append(Step("think", parts=(left.pop(0),)))
            case "fork":
                size = rng.randint(1, min(largest_fork, len(left)))
                key = next(str(i) for i in range(1, capacity) if str(i) not in active)
                steps.append(Step("fork", key, tuple(left.pop(0) for _ in range(size))))
                active.append(key)
            case "join":
                key = active.pop(rng.randrange(len(active)))
                steps.append(Step("join", key))
    return steps
