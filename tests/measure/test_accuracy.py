"""Grades to numbers: None stays None, a failed answer is wrong, pass@k is unbiased, maj@k is the grade of the vote."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from orgthink.measure.accuracy import all_correct, at_least, maj_at_k, pass_at_k
from orgthink.record.episode import Episode, Grade, Problem, StopReason, Trace
from orgthink.tasks import Solution, vote
from orgthink.util.registry import require_trust


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


def answered(*answers: str | None, right: str = "5", required: int = 1) -> list[Episode]:
    """Samples with these answers; `?` has no grade."""
    return [
        replace(graded(None if answer == "?" else int(answer is not None and right in answer), required), answer=answer)
        for answer in answers
    ]


@pytest.mark.parametrize(
    ("answers", "voted"),
    [
        (("5", "6", "5"), 1),
        (("6", "5", "6"), 0),
        (("6", "5", "5"), 1),
        (("5", "\\boxed{5}", "5.0", "6"), 1),
        (("6", "6", "5", "5"), 0),  # ties go to the first one, as in a vote
        (("5", "5", "6", "6"), 1),
        ((None, None, "5"), 1),
        ((None, None), 0),
        (("", "", "5"), 1),
    ],
)
def test_maj_at_k_is_the_grade_of_the_most_frequent_answer(answers, voted) -> None:
    assert maj_at_k(answered(*answers), len(answers)) == voted


def test_maj_at_k_is_unknown_without_k_grades_and_for_several_solutions() -> None:
    assert maj_at_k(answered("5", "?"), 2) is None
    assert maj_at_k(answered("5", "5", required=2), 2) is None


def test_maj_at_k_runs_no_program_and_survives_a_task_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []

    def fails(problem: Problem, answer: str) -> list[Solution]:
        require_trust("the program in an answer")
        ran.append(answer)
        return []

    monkeypatch.setattr(vote, "_solutions", fails)
    assert maj_at_k(answered("a program", "another program"), 2) is None and not ran
    monkeypatch.setattr(vote, "_solutions", lambda problem, answer: 1 / 0)
    assert maj_at_k(answered("a new program", "another new program"), 2) is None
