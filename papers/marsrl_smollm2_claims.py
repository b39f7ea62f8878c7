"""Decides the claims about MarsRL on SmolLM2 from outcomes by problem. They are a draft until the gate is passed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from statistics import fmean

from orgthink.measure.estimate import Estimate
from papers.claims import Rows, best
from papers.conditions import MARGIN, SOLVED, Claims, Condition, around, condition, gap, shared, tokens
from papers.outcomes import Outcome

VOTES = ("vote-3", "vote-4", "vote-6")
"""Votes of solvers after RL of solvers only."""
CHOICES = ("choice-2", "choice-3")
"""Solutions of the system's solver, of which its verifier chooses."""

Effects = dict[tuple[str, int], float]


def pooled(outcomes: Sequence[Outcome], values: Callable[[Outcome], Iterable[float]]) -> tuple[float, Effects]:
    """Mean of all values of all outcomes, and what each problem and training adds to it."""
    found = {(one.problem, one.training): list(values(one)) for one in outcomes}
    all_values = [value for each in found.values() for value in each]
    mean, scale = fmean(all_values or [0.0]), len(found) / max(1, len(all_values))
    return mean, {cell: scale * sum(value - mean for value in each) for cell, each in found.items()}


def sum_of(*parts: tuple[float, tuple[float, Effects]]) -> Estimate:
    """A weighted sum of pooled means over the same problems and trainings."""
    effects = {cell: sum(weight * own[cell] for weight, (_, own) in parts) for cell in parts[0][1][1]}
    return around(sum(weight * mean for weight, (mean, _) in parts), effects)


def balanced(outcomes: Sequence[Outcome]) -> Estimate:
    """Balanced accuracy of verifiers: the mean of the shares of right solutions passed and of wrong ones rejected."""
    return sum_of(
        *(
            (
                0.5,
                pooled(
                    outcomes,
                    lambda one, truth=truth: [passed == right for right, passed, _ in one.judged if right == truth],
                ),
            )
            for truth in (True, False)
        )
    )


def passed_units(one: Outcome) -> list[float]:
    """Units that were checked before each verdict that passes a solution: others end at the first bad unit."""
    return [units for _, passed, units in one.judged if passed]


def mends(one: Outcome) -> list[float]:
    """1 for each correction of a wrong solution to a right one, -1 for one of a right solution to a wrong one."""
    return [after[0] - before[0] for before, after in pairwise(one.judged)]


def better(found: Rows) -> list[Condition]:
    """(a) The system solves more than its best rival: RL of the solver alone, and votes and choices with at least as
    many tokens."""
    main, rivals = found["main"], ["solver-only"]
    for labels in (VOTES, CHOICES):
        equal = next((label for label in labels if tokens(found[label]) >= tokens(main)), None)
        if equal is None:
            return [Condition(f"{labels[0]}, … with at least as many tokens are needed", None, "not run")]
        rivals.append(equal)
    top = best(found, rivals)
    return [
        condition(f"solved - that of {top} is at least 0.05, lower end above 0", gap(main, found[top], SOLVED), 0.05, 0)
    ]


def checking(found: Rows) -> list[Condition]:
    """(b) Verifiers judge well, since RL makes them check more units (the paper's Fig. 6)."""
    main, before = found["main"], shared(found["before"], found["main"])
    more = sum_of((1.0, pooled(main, passed_units)), (-1.0, pooled(before, passed_units)))
    return [
        condition("balanced accuracy is at least 0.85, lower end above 0.80", balanced(main), 0.85, 0.80),
        condition("units checked before passing, after - before, are at least 3, lower end above 0", more, 3.0, 0.0),
    ]


def mending(found: Rows) -> list[Condition]:
    """(c) Corrections mend more than they break, and the system solves no less than with fresh attempts."""
    main = found["main"]
    return [
        condition(
            "mends - breaks in a correction are above 0, lower end too", sum_of((1.0, pooled(main, mends))), 0, 0
        ),
        condition(
            f"solved - that of fresh is at least 0, lower end above -{MARGIN}",
            gap(main, found["fresh"], SOLVED),
            0,
            -MARGIN,
        ),
    ]


def own_rewards(found: Rows) -> list[Condition]:
    """(d) A reward for each role trains a better system than one reward for all."""
    text = "solved - that of shared is at least 0.03, lower end above 0"
    return [condition(text, gap(found["main"], found["shared"], SOLVED), 0.03, 0.0)]


CLAIMS = Claims({"a": better, "b": checking, "c": mending, "d": own_rewards}, (0.6,), VOTES)
