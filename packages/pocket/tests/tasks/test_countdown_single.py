"""Countdown that asks for one solution: the same numbers and targets as the mini task, and no way to hedge."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orgthink_pocket.tasks.countdown import COUNTDOWN_MINI, COUNTDOWN_MINI_SINGLE

from orgthink.tasks import TASKS
from orgthink.tasks.countdown import all_solutions

SINGLE = COUNTDOWN_MINI_SINGLE.problem([1, 2, 3, 7, 9], 18)
RIGHT = ["7 + 9 + 2", "2 * 7 + 3 + 1", "(3 - 1) * 9"]
WRONG = ["7 + 9", "7 + 9 + 1", "9 + 9 + 0", "9 * 2"]
UNREAD = ["nonsense", "none", "here it is:"]


def test_it_has_a_name_and_needs_one_solution():
    assert TASKS["countdown-mini-single"] is COUNTDOWN_MINI_SINGLE
    assert SINGLE.required == 1 and SINGLE.task == "countdown-mini-single"
    assert "one expression" in SINGLE.text and "different" not in SINGLE.text


def test_held_out_targets_are_those_of_the_mini_task():
    assert COUNTDOWN_MINI_SINGLE.test_targets == COUNTDOWN_MINI.test_targets
    for split in ("train", "test"):
        for problem in islice(COUNTDOWN_MINI_SINGLE.problems(split, 3), 200):
            assert (problem.data["target"] in COUNTDOWN_MINI.test_targets) == (split == "test")


@pytest.mark.parametrize("split", ["train", "test"])
def test_every_problem_has_a_solution_of_three_numbers(split):
    for problem in islice(COUNTDOWN_MINI_SINGLE.problems(split, 1), 200):
        numbers, target = problem.data["numbers"], problem.data["target"]
        table = all_solutions(numbers, 3)
        assert any(target in values for mask, values in table.items() if mask.bit_count() == 3)
        assert target not in numbers


def test_problems_with_fewer_solutions_than_the_mini_task_asks_for_are_among_them():
    drawn = [problem.data for problem in islice(COUNTDOWN_MINI_SINGLE.problems("train", 2), 300)]
    few = [data for data in drawn if data["target"] not in COUNTDOWN_MINI.qualifying(data["numbers"])]
    assert 0 < len(few) < len(drawn)


@pytest.mark.parametrize("expression", RIGHT)
def test_one_right_expression_is_all(expression):
    grade = COUNTDOWN_MINI_SINGLE.grade(SINGLE, expression)
    assert (grade.correct, grade.required) == (1, 1)


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(UNREAD)),
    st.sampled_from(RIGHT + WRONG),
    st.lists(st.sampled_from(RIGHT + WRONG + UNREAD)),
    st.sampled_from("\n;,"),
)
def test_only_the_first_expression_counts(heading, first, more, separator):
    answer = separator.join([*heading, first, *more])
    assert COUNTDOWN_MINI_SINGLE.grade(SINGLE, answer).all_correct == (first in RIGHT)
