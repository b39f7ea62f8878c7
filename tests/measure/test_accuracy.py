"""Grades to numbers: None stays None, a failed answer is wrong, pass@k is unbiased."""

from __future__ import annotations

from itertools import combinations

import pytest

from orgthink.measure.accuracy import all_correct, at_least, pass_at_k
from orgthink.record.episode import Episode, Grade, Problem, StopReason, Trace


def graded(correct: int | None, required: int = 4, *, stop: StopReason = StopReason.DONE) -> Episode:
    grade = None if correct is None else Grade(correct, required)
    problem = Problem("p", "t", "", required=required)
    return Episode("p|x|0", problem, "x", 1, (Trace("a", "a", None, ()),), grade=grade, stop=stop)


def test_at_least_and_all_correct() -> None:
    assert [at_least(graded(2), a) for a in range(1, 6)] == [True, True, False, False, None]
    assert [all_correct(graded(n)) for n in (0, 3, 4, 5)] == [False, False, True, True]


def test_ungraded_is_none_and_failed_is_wrong() -> None:
    assert at_least(graded(None), 1) is None
    assert all_correct(graded(None)) is None
    assert all_correct(graded(0, stop=StopReason.ERROR)) is False


@pytest.mark.parametrize("k", range(1, 7))
def test_pass_at_k_is_the_share_of_all_choices_of_k_samples(k: int) -> None:
    samples = [graded(1, 1), graded(0, 1), graded(0, 1), graded(1, 1), graded(0, 1), graded(0, 1)]
    choices = list(combinations(samples, k))
    hits = sum(any(all_correct(sample) for sample in choice) for choice in choices)
    assert pass_at_k(samples, k) == pytest.approx(hits / len(choices))


def test_pass_at_k_needs_k_graded_samples() -> None:
    assert pass_at_k([graded(1, 1), graded(None, 1)], 2) is None
    with pytest.raises(ValueError, match="k is 0"):
        pass_at_k([graded(1, 1)], 0)
