"""Random thinking structures (section 3.1 of AsyncThink): sequences of organizer actions to imitate.

A teacher without a given structure writes two shapes only. Random structures let the student explore others.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Step:
    """One action of an organizer, applied to parts of the problem."""

    action: str
    """`think`, `fork` or `join`."""
    key: str = ""
    """Key of the fork or join; empty for `think`."""
    parts: tuple[str, ...] = ()
    """Parts of the problem that the organizer thinks about or forks; empty for `join`."""


@dataclass(frozen=True, slots=True)
class Chances:
    """How likely an action is beside the others that are possible."""

    think: int = 1
    """Of thinking."""
    fork: int = 2
    """Of a fork."""
    join: int = 1
    """Of a join."""


EVEN = Chances()
"""A fork is as likely as thinking and a join together."""
VARIED = (1, 2, 4, 8, 16)
"""What each chance is drawn from in a varied structure."""


INDEPENDENT: Mapping[str, str] = MappingProxyType({})
"""No part needs another one."""


def random_structure(
    rng: random.Random,
    parts: Sequence[str],
    capacity: int,
    largest_fork: int = 2,
    chances: Chances = EVEN,
    needs: Mapping[str, str] = INDEPENDENT,
    *,
    smallest_fork: int = 1,
    oldest_first: bool = False,
    follow_needs: bool = False,
) -> list[Step]:
    """Sample a valid sequence of actions. Each part is thought about or forked once, and every fork is joined.

    A fork takes from `smallest_fork` to `largest_fork` parts, if so many are left, and the lowest free key. At most
    `capacity - 1` forks are active at a time. Forks are joined in random order, or `oldest_first`. `needs` names the
    part that a part needs. It has to be thought about or joined before, or stand before it in the same fork. A fork
    takes the first parts that it can, or if it is to `follow_needs`, the first one, what needs that, and so on.
    """
    left = list(parts)
    known: set[str] = set()
    active: dict[str, tuple[str, ...]] = {}
    steps: list[Step] = []
    while left or active:
        ready = _next(left, known, needs) is not None
        choices = ["think"] * (ready * chances.think) + ["join"] * (bool(active) * chances.join)
        if ready and len(active) < capacity - 1:
            choices += ["fork"] * chances.fork
        match rng.choice(choices):
            case "think":
                taken = _taken(left, 1, known, needs)
                steps.append(Step("think", parts=taken))
                known.update(taken)
            case "fork":
                size = rng.randint(min(smallest_fork, len(left)), min(largest_fork, len(left)))
                key = next(str(i) for i in range(1, capacity) if str(i) not in active)
                active[key] = _taken(left, size, known, needs, follow_needs=follow_needs)
                steps.append(Step("fork", key, active[key]))
            case "join":
                key = list(active)[0 if oldest_first else rng.randrange(len(active))]
                known.update(active.pop(key))
                steps.append(Step("join", key))
    return steps


def _next(left: Sequence[str], known: Collection[str], needs: Mapping[str, str]) -> str | None:
    """The first part whose need is known; `None` if there is none."""
    return next((part for part in left if part not in needs or needs[part] in known), None)


def _taken(
    left: list[str], size: int, known: Collection[str], needs: Mapping[str, str], *, follow_needs: bool = False
) -> tuple[str, ...]:
    """Up to `size` parts, which are no longer left: each needs what is known, or one that is taken before it."""
    taken: list[str] = []
    while len(taken) < size:
        following = (part for part in left if follow_needs and taken and needs.get(part) == taken[-1])
        part = next(following, None) or _next(left, {*known, *taken}, needs)
        if part is None:
            break
        left.remove(part)
        taken.append(part)
    return tuple(taken)


def varied_structure(
    rng: random.Random,
    parts: Sequence[str],
    capacity: int,
    largest_fork: int = 2,
    needs: Mapping[str, str] = INDEPENDENT,
) -> list[Step]:
    """A random structure with chances of its own: some only fork before they join, others hardly fork at all.

    With the same chances for all, a pool of eight is seldom full: six parts in six forks at once come once in 1,400.
    """
    chances = Chances(*(rng.choice(VARIED) for _ in range(3)))
    return random_structure(rng, parts, capacity, rng.randint(1, largest_fork), chances, needs)


def consistent_structure(
    rng: random.Random,
    parts: Sequence[str],
    capacity: int,
    largest_fork: int = 3,
    needs: Mapping[str, str] = INDEPENDENT,
) -> list[Step]:
    """A varied structure with habits of its own: all its forks have one size, half of these structures join the oldest
    fork first, and half fork parts together with those that need them.

    Where forks of two and three parts follow each other only by chance, nobody tries several of them.
    """
    chances, size = Chances(*(rng.choice(VARIED) for _ in range(3))), rng.randint(1, largest_fork)
    habits = {"oldest_first": rng.random() < 0.5, "follow_needs": rng.random() < 0.5}
    return random_structure(rng, parts, capacity, size, chances, needs, smallest_fork=size, **habits)


def fixed_structure(
    rng: random.Random, parts: Sequence[str], capacity: int, needs: Mapping[str, str] = INDEPENDENT
) -> list[Step]:
    """One of the two topologies that a teacher without a given structure writes (section 3.1), at even chances: every
    Fork is joined at once, or the parts are divided among `capacity - 1` Forks, which are then joined in order. Where
    parts need each other it is the first one.
    """
    if needs or rng.random() < 0.5:
        ordered = _taken(list(parts), len(parts), (), needs)
        return [step for part in ordered for step in (Step("fork", "1", (part,)), Step("join", "1"))]
    size = -(-len(parts) // max(1, capacity - 1))
    forks = [Step("fork", str(1 + i // size), tuple(parts[i : i + size])) for i in range(0, len(parts), size)]
    return [*forks, *(Step("join", fork.key) for fork in forks)]


def random_plan(rng: random.Random, capacity: int) -> list[Step]:
    """Sample a structure for a question whose parts are not known: the teacher finds them.

    The plan has at least one fork, and the keys count up from 1. Consecutive `think` steps are merged. ValueError if
    the capacity leaves no worker.
    """
    if capacity < 2:
        raise ValueError(f"capacity is {capacity}: a plan with forks needs at least 2, the organizer and a worker")
    forked: list[Step] = []
    steps: list[Step] = []
    while not forked:
        parts = [""] * rng.randint(2, capacity + 2)
        steps = random_structure(rng, parts, capacity, largest_fork=1)
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
