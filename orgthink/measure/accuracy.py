"""Accuracy of answers. A measure of an episode without a grade is `None`, never 0.

A failed episode with a grade counts as a wrong answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import comb

from orgthink.record.episode import Episode


def at_least(episode: Episode, a: int) -> bool | None:
    """`≥ a correct`: whether at least `a` different solutions were found.

    `None` without a grade, or if the problem requires fewer than `a` solutions.
    """
    grade = episode.grade
    return None if grade is None or a > grade.required else grade.correct >= a


def all_correct(episode: Episode) -> bool | None:
    """Whether all n_s required solutions were found; `None` without a grade."""
    return None if episode.grade is None else episode.grade.all_correct


def mixed(episodes: Iterable[Episode]) -> list[str]:
    """Problems that some of their graded episodes answer all correctly, and others do not: only there outcomes differ
    (section 4.2 of ParaManager)."""
    outcomes: defaultdict[str, set[bool]] = defaultdict(set)
    for episode in episodes:
        if (outcome := all_correct(episode)) is not None:
            outcomes[episode.problem.id].add(outcome)
    return [problem for problem, different in outcomes.items() if len(different) > 1]


def pass_at_k(samples: Sequence[Episode], k: int) -> float | None:
    """pass@k: probability that at least one of k samples is all correct; `None` if fewer than k are graded.

    The estimate from n ≥ k graded samples with c correct ones is unbiased: 1 - C(n - c, k) / C(n, k) (Chen et al. 2021,
    arXiv:2107.03374). ValueError if k < 1.
    """
    if k < 1:
        raise ValueError(f"k is {k}: pass@k needs at least one sample")
    graded = [episode.grade.all_correct for episode in samples if episode.grade is not None]
    n, c = len(graded), sum(graded)
    return 1 - comb(n - c, k) / comb(n, k) if n >= k else None
