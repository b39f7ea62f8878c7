"""Decides the claims of `claims.json` from the stored outcomes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import Any, NamedTuple

from orgthink.measure.estimate import Estimate, crossed_average, crossed_difference, crossed_proportion, student
from papers.outcomes import HERE, Outcome, read

FILE = HERE / "claims.json"

Rows = dict[str, list[Outcome]]
"""Label of a row → its outcomes."""


class Difference(NamedTuple):
    """A difference of two rows with its 95 % interval over problems and trainings."""

    first: str
    second: str
    measured: float
    low: float
    high: float


def rows(paper: str) -> Rows:
    """The outcomes of a paper by row."""
    found: Rows = {}
    for outcome in read(paper):
        found.setdefault(outcome.row, []).append(outcome)
    return found


def unit(problem: str) -> str:
    """What is drawn at random: a countdown's target, which several problems share; else the problem."""
    shared = problem.startswith(("countdown-mini/", "countdown-small/", "countdown-all/"))
    return problem.rpartition("=")[2].partition("x")[0] if shared else problem


def cells(outcomes: Sequence[Outcome], value: Callable[[Outcome], float]) -> list[tuple[str, int, float]]:
    """Unit, training and value of each outcome."""
    return [(unit(one.problem), one.training, float(value(one))) for one in outcomes]


def solved(outcomes: Sequence[Outcome]) -> Estimate:
    """Share of attempts that are completely right, with a 95 % interval."""
    return crossed_proportion(cells(outcomes, lambda one: one.solved))


def path(outcomes: Sequence[Outcome]) -> Estimate:
    """Mean critical path in decoding steps, with a 95 % interval."""
    return crossed_average(cells(outcomes, lambda one: one.path))


def compared(found: Rows, first: str, second: str, value: Callable[[Outcome], float]) -> Difference:
    """First minus second row, paired by problem and by training."""
    gap = crossed_difference(cells(found[first], value), cells(found[second], value))
    assert gap.mean is not None and gap.low is not None and gap.high is not None
    return Difference(first, second, gap.mean, gap.low, gap.high)


def best(found: Rows, labels: Sequence[str]) -> str:
    """The row with the highest share of solved problems."""
    return max(labels, key=lambda label: fmean(one.solved for one in found[label]))


def judgement(outcomes: Sequence[Outcome]) -> float:
    """Balanced accuracy of verifiers: the mean of the shares of right solutions passed and of wrong ones rejected."""
    judged = [pair for one in outcomes for pair in one.judged]
    return fmean(fmean(passed == right for right, passed in judged if right == truth) for truth in (True, False))


def judged_better(found: Rows, first: str, second: str) -> Difference:
    """Difference of the verifiers' balanced accuracy; Student's interval over trainings."""

    def of(label: str, training: int) -> float:
        return judgement([one for one in found[label] if one.training == training])

    gaps = [of(first, training) - of(second, training) for training in sorted({one.training for one in found[first]})]
    half = student(len(gaps) - 1) * stdev(gaps) / sqrt(len(gaps))
    return Difference(first, second, fmean(gaps), fmean(gaps) - half, fmean(gaps) + half)


def asyncthink(found: Rows) -> list[Difference]:
    """The claims about AsyncThink, in the order of the file."""
    strongest = best(found, ("one-thinker", "one-thinker-after", "vote-of-four"))
    return [
        compared(found, "asyncthink-after", "asyncthink-before", lambda one: one.solved),
        compared(found, "asyncthink-after", strongest, lambda one: one.solved),
        compared(found, "asyncthink-after", "asyncthink-before", lambda one: one.path),
    ]


def marsrl(found: Rows) -> list[Difference]:
    """The claims about MarsRL, in the order of the file."""
    return [
        compared(found, "system-after", "system-before", lambda one: one.solved),
        compared(found, "system-after", best(found, ("vote-before", "vote-after")), lambda one: one.solved),
        judged_better(found, "system-after", "system-before"),
    ]


def paramanager(found: Rows) -> list[Difference]:
    """The claims about ParaManager, in the order of the file."""
    others = best(found, ("tool-use", *(label for label in found if label.startswith("member-"))))
    return [
        compared(found, "manager-after", "manager-sft", lambda one: one.solved),
        compared(found, "manager-after", others, lambda one: one.solved),
    ]


DEADLINE = 128
"""Decoding steps of a critical path that `in_time` allows."""


def in_time(one: Outcome, deadline: int = DEADLINE) -> float:
    """Whether a problem is solved before the deadline."""
    return one.solved and one.path <= deadline


def gained(found: Rows, after: str, before: str) -> list[tuple[str, int, float]]:
    """What RL added to the share solved: unit, training and difference of each problem."""
    old = {(one.problem, one.training): one.solved for one in found[before]}
    return [(unit(one.problem), one.training, one.solved - old[one.problem, one.training]) for one in found[after]]


def gained_more(found: Rows, first: tuple[str, str], second: tuple[str, str]) -> Difference:
    """Difference of what RL added to two forms; each is named by its form and its reward."""
    gains = (gained(found, f"{form}, RL {reward}", f"{form}, taught") for form, reward in (first, second))
    gap = crossed_difference(*gains)
    assert gap.mean is not None and gap.low is not None and gap.high is not None
    return Difference(f"gain of {first[0]}", f"gain of {second[0]}", gap.mean, gap.low, gap.high)


def question(found: Rows) -> list[Difference]:
    """The claims about asynchronous organizing, in the order of the file."""
    return [
        compared(found, "single, taught", "sequential, taught", in_time),
        compared(found, "push, taught", "barrier, taught", in_time),
        gained_more(found, ("single", "path"), ("sequential", "path")),
        gained_more(found, ("single", "path"), ("two-forks", "fixed")),
    ]


PAPERS: dict[str, Callable[[Rows], list[Difference]]] = {
    "asyncthink": asyncthink,
    "marsrl": marsrl,
    "paramanager": paramanager,
    "question": question,
}


def claims() -> list[dict[str, Any]]:
    """The stored claims."""
    return json.loads(FILE.read_bytes())


def decided(stored: Sequence[dict[str, Any]], paper: str, found: Sequence[Difference]) -> list[dict[str, Any]]:
    """The claims with what was measured for those of a paper."""
    own = iter(found)
    return [_with(claim, next(own)) if claim["paper"] == paper else claim for claim in stored]


def _with(claim: dict[str, Any], gap: Difference) -> dict[str, Any]:
    refuted = gap.low <= 0 if claim["refuted_if"] == "lower end <= 0" else gap.high >= 0
    numbers = {"measured": round(gap.measured, 4), "low": round(gap.low, 4), "high": round(gap.high, 4)}
    return claim | numbers | {"holds": not refuted, "compared": f"{gap.first} - {gap.second}"}


def text(stored: Sequence[dict[str, Any]]) -> str:
    """The file of claims: one claim a line, so that a change is one line of a diff."""
    return "[\n" + ",\n".join(json.dumps(claim, ensure_ascii=False) for claim in stored) + "\n]\n"
