"""Decides the claims about AsyncThink on SmolLM2 by outcomes of problems. They are a draft until the gate is passed."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from orgthink.measure.estimate import Estimate
from papers.claims import Rows, best
from papers.conditions import (
    FORKS,
    MARGIN,
    PATH,
    SOLVED,
    Claims,
    Condition,
    Value,
    around,
    cell_values,
    condition,
    gap,
    ratio,
    tokens,
)
from papers.outcomes import Outcome

MARGIN_OF_A_PART = 2 * MARGIN
"""The same on the largest problems, which are a quarter of them, so that the interval is twice as wide."""
VOTES = ("vote-2", "vote-4")
THINKERS = ("sequential", "sequential-x2", "sequential-x4", "thinker-before")


def numbers(problem: str) -> int:
    """How many numbers a countdown has, by the id of the problem, such as `countdown-small/8-10-20-27=23x2`."""
    return problem.rpartition("/")[2].count("-") + 1


def rise(outcomes: Sequence[Outcome], value: Value) -> Estimate:
    """Mean at the largest problems minus that at the smallest ones."""
    sizes = {numbers(one.problem) for one in outcomes}
    values = cell_values(outcomes, value)
    parts = [
        {key: each for key, each in values.items() if numbers(key[0]) == size} for size in (max(sizes), min(sizes))
    ]
    means = [fmean(part.values()) for part in parts]
    scale = [len(values) / len(part) for part in parts]
    effects = dict.fromkeys(values, 0.0)
    for sign, part, mean, times in zip((1, -1), parts, means, scale, strict=True):
        effects |= {key: sign * times * (each - mean) for key, each in part.items()}
    return around(means[0] - means[1], effects)


def shorter(found: Rows) -> list[Condition]:
    """(a) RL shortens the critical path, and accuracy is not lower."""
    after, before = found["main"], found["before"]
    return [
        condition(
            "path after ÷ before is at most 0.80, upper end below 0.90",
            ratio(after, before, PATH),
            0.8,
            0.9,
            least=False,
        ),
        condition(
            f"solved after - before is at least 0, lower end above -{MARGIN}", gap(after, before, SOLVED), 0, -MARGIN
        ),
    ]


def better(found: Rows) -> list[Condition]:
    """(b) At equal tokens of a segment, more is solved than by sequential RL; at equal tokens in all, than by votes."""
    main, alone = found["main"], found["sequential"]
    votes = {label: found[label] for label in VOTES}
    equal = next((label for label in VOTES if tokens(votes[label]) >= tokens(main)), None)
    text = "solved - that of {} is at least {}, lower end above 0"
    return [
        condition(text.format("sequential RL", 0.1), gap(main, alone, SOLVED), 0.1, 0.0),
        Condition("votes with at least as many tokens are needed", None, "not run")
        if equal is None
        else condition(text.format(equal, 0), gap(main, votes[equal], SOLVED), 0.0, 0.0),
    ]


def faster(found: Rows) -> list[Condition]:
    """(c) On the largest problems, the path is much shorter than the best thinker's at about the same accuracy."""
    largest = max(numbers(one.problem) for one in found["main"])
    part = {
        label: [one for one in found[label] if numbers(one.problem) == largest] for label in ("main", *THINKERS, *VOTES)
    }
    top = best(part, (*THINKERS, *VOTES))
    of_top = f"{top}'s at {largest} numbers"
    return [
        condition(
            f"path ÷ {of_top} is at most 0.65, upper end below 1", ratio(part["main"], part[top], PATH), 0.65, 1.0,
            least=False,
        ),
        condition(
            f"solved - {of_top} is at least -0.02, lower end above -{MARGIN_OF_A_PART}",
            gap(part["main"], part[top], SOLVED), -0.02, -MARGIN_OF_A_PART,
        ),
    ]  # fmt: skip


def adapted(found: Rows) -> list[Condition]:
    """(d) It forks where that pays: at the largest problems, not at the smallest, and beats both constant policies."""
    main = found["main"]
    return [
        condition("share that forks, largest - smallest problems, is at least 0.50", rise(main, FORKS), 0.5, 0.0),
        *(
            condition(
                f"path - that of {label} is below 0, upper end too", gap(main, found[label], PATH), 0, 0, least=False
            )
            for label in ("fan-out", "never")
        ),
    ]


CLAIMS = Claims({"a": shorter, "b": better, "c": faster, "d": adapted}, (0.0, 0.6), VOTES)
