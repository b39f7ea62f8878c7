"""Random thinking structures (section 3.1 of AsyncThink): sequences of organizer actions to imitate.

A teacher without a given structure writes only two kinds. Random structures let the student explore others.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One action of an organizer, applied to parts of the problem."""

    action: str
    """`think`, `fork` or `join`."""
    key: str = ""
    """Key of the fork or join; empty for `think`."""
    parts: tuple[str, ...] = ()
    """Parts of the problem that the organizer thinks about or forks; empty for `join`."""


def random_structure(rng: random.Random, parts: Sequence[str], capacity: int, largest_fork: int = 2) -> list[Step]:
    """Sample a valid sequence of actions. Each part is thought about or forked once, and every fork is joined.

    A fork is as likely as thinking and a join together. It takes up to `largest_fork` parts and the lowest free key. At
    most `capacity - 1` forks are active at a time. Forks are joined in random order.
    """
    left, active, steps = list(parts), list[str](), list[Step]()
    while left or active:
        choices = ["think"] * bool(left) + ["join"] * bool(active)
        if left and len(active) < capacity - 1:
            choices += ["fork"] * 2
        match rng.choice(choices):
            case "think":
                steps.append(Step("think", parts=(left.pop(0),)))
            case "fork":
                size = rng.randint(1, min(largest_fork, len(left)))
                key = next(str(i) for i in range(1, capacity) if str(i) not in active)
                steps.append(Step("fork", key, tuple(left[:size])))
                active.append(key)
                del left[:size]
            case "join":
                steps.append(Step("join", active.pop(rng.randrange(len(active)))))
    return steps


def random_plan(rng: random.Random, capacity: int) -> list[Step]:
    """Sample a structure for a question whose parts are not known: the teacher finds them.

    The plan has at least one fork, and its keys count up from 1. Consecutive `think` steps are merged. ValueError if
    the capacity leaves no worker.
    """
    if capacity < 2:
        raise ValueError(f"capacity is {capacity}: a plan with forks needs at least 2, the organizer and a worker")
    forked: list[Step] = []
    steps: list[Step] = []
    while not forked:
        steps = random_structure(rng, [""] * rng.randint(2, capacity + 2), capacity, largest_fork=1)
        forked = [step for step in steps if step.action == "fork"]
    plan: list[Step] = []
    taken: dict[str, str] = {}
    count = 0
    for step in steps:
        if step.action == "fork":
            count += 1
            taken[step.key] = str(count)
        if step.action != "think" or not (plan and plan[-1].action == "think"):
            plan.append(Step(step.action, taken.get(step.key, "")))
    return plan


def render_plan(plan: Sequence[Step]) -> str:
    """A plan as the teacher's prompt shows it: `FORK-1, THINK, FORK-2, JOIN-1, JOIN-2, ANSWER`."""
    return ", ".join([step.action.upper() + (f"-{step.key}" if step.key else "") for step in plan] + ["ANSWER"])
