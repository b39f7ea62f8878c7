"""Several countdowns at once: parts are graded alone, in any order, and nothing but a solution of a part pays."""

from __future__ import annotations

import re
from itertools import islice

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from orgthink_pocket.base import style as base
from orgthink_pocket.style import NAMED, SEPARATOR, terse
from orgthink_pocket.tasks.countdown import COUNTDOWN_MINI, COUNTDOWN_MINI_SINGLE
from orgthink_pocket.tasks.countdown_several import COUNTDOWN_MINI_FOUR, COUNTDOWN_MINI_SIX
from orgthink_pocket.teachers.countdown_review import solved

from orgthink.tasks import TASKS

FOUR = COUNTDOWN_MINI_FOUR.problem(
    [
        COUNTDOWN_MINI_SINGLE.problem(numbers, target)
        for numbers, target in (
            ([1, 2, 3, 7, 9], 18),
            ([2, 3, 9, 11, 14], 29),
            ([3, 5, 6, 8, 15], 40),
            ([1, 4, 5, 8, 12], 33),
        )
    ]
)
RIGHT = (
    ("7 + 9 + 2", "(3 - 1) * 9", "2 * 7 + 3 + 1"),
    ("( 2 * 9 ) + 11", "3 * 2 + 9 + 14", "2 * 9 + 11 = 29"),
    ("( 15 / 3 ) * 8", "5 * 6 + 15 - 8 + 3"),
    ("( 5 * 8 ) - 12 + 4 + 1", "( 4 * 8 ) + 1"),
)
"""Solutions of each part."""
WRONG = ("7 + 9", "9 + 9 + 0", "14 + 14 + 1", "18", "( 8 * 5 ) * 1", "2 * 9 + 11 = 30", "none", "nonsense", "1 / 0")
UNREAD = ("18", "2 * 9 + 11 = 30", "none", "nonsense", "1 / 0")
"""No expressions, or not equal to what they are said to be: they take no place."""

_separators = st.sampled_from(["\n", SEPARATOR, ";", ", "])
_solutions = st.tuples(*map(st.sampled_from, RIGHT))
_offers = st.sampled_from([*WRONG, *(one for part in RIGHT for one in part)])


def _correct(answer: str) -> int:
    grade = COUNTDOWN_MINI_FOUR.grade(FOUR, answer)
    assert grade.required == 4 and grade.correct is not None
    return grade.correct


def test_it_has_a_name_and_asks_for_a_solution_of_each_part():
    assert TASKS["countdown-mini-four"] is COUNTDOWN_MINI_FOUR
    assert FOUR.required == 4 and FOUR.task == "countdown-mini-four"
    assert terse(FOUR) == (
        "countdown 18 : 1 2 3 7 9 = 18 ; 29 : 2 3 9 11 14 = 29 ; 40 : 3 5 6 8 15 = 40 ; 33 : 1 4 5 8 12 = 33"
    )
    for number, part in enumerate(FOUR.data["parts"], 1):
        assert f"{number}. {COUNTDOWN_MINI_SINGLE.problem(part['numbers'], part['target']).text}" in FOUR.text


def test_six_countdowns_have_words_as_names_in_the_words_of_the_base():
    problem = next(COUNTDOWN_MINI_SIX.problems("test", 0))
    targets = [part["target"] for part in problem.data["parts"]]
    assert len(set(targets)) == problem.required == 6 and set(targets) <= COUNTDOWN_MINI.test_targets
    asked = base.terse(problem).removeprefix("several ").split(SEPARATOR)
    assert [part.split()[0] for part in asked] == ["copper", "zinc", "iron", "tin", "silver", "gold"]
    assert [part.split()[-1] for part in asked] == [str(target) for target in targets]


# The stream


@pytest.mark.parametrize("split", ["train", "test"])
def test_parts_are_problems_of_the_single_task_with_different_targets_of_the_split(split):
    for problem in islice(COUNTDOWN_MINI_FOUR.problems(split, 3), 150):
        parts = problem.data["parts"]
        assert len({part["target"] for part in parts}) == len(parts) == problem.required == 4
        for part in parts:
            assert (part["target"] in COUNTDOWN_MINI.test_targets) == (split == "test")
            assert part["target"] in COUNTDOWN_MINI_SINGLE.qualifying(part["numbers"])


def test_a_stream_is_the_same_for_the_same_split_and_seed_only():
    def first(split, seed):
        return list(islice(COUNTDOWN_MINI_FOUR.problems(split, seed), 5))

    assert first("train", 1) == first("train", 1)
    assert first("train", 1) != first("train", 2) and first("train", 1) != first("test", 1)


@given(st.sampled_from(["train", "test"]), st.integers(0, 1 << 30))
def test_a_terse_problem_names_each_part_by_its_target(split, seed):
    problem = next(COUNTDOWN_MINI_FOUR.problems(split, seed))
    named = [part.split(NAMED) for part in terse(problem).removeprefix("countdown ").split(SEPARATOR)]
    told = [COUNTDOWN_MINI_SINGLE.problem(part["numbers"], part["target"]) for part in problem.data["parts"]]
    assert [(int(name), f"countdown {part}") for name, part in named] == [(p.data["target"], terse(p)) for p in told]


def test_problems_have_an_id_of_their_own():
    drawn = {problem.id: problem for problem in islice(COUNTDOWN_MINI_FOUR.problems("train", 0), 300)}
    assert len({terse(problem) for problem in drawn.values()}) == len(drawn) > 290


@given(st.sampled_from(["train", "test"]), st.integers(0, 1 << 30))
def test_solutions_of_all_parts_are_all_that_is_asked_for(split, seed):
    problem = next(COUNTDOWN_MINI_FOUR.problems(split, seed))
    offers = [solved(part["numbers"], part["target"])[1] for part in problem.data["parts"]]
    for n in range(5):
        grade = COUNTDOWN_MINI_FOUR.grade(problem, SEPARATOR.join(offers[:n]))
        assert (grade.correct, grade.all_correct) == (n, n == 4)


# Grading


@given(_solutions.flatmap(st.permutations), _separators)
def test_solutions_count_in_any_order(offers, separator):
    assert _correct(separator.join(offers)) == 4


@given(_solutions, st.sets(st.integers(0, 3)), st.sampled_from(WRONG), _separators)
def test_a_part_that_is_wrong_takes_nothing_from_the_others(offers, spoiled, wrong, separator):
    said = [wrong if part in spoiled else offer for part, offer in enumerate(offers)]
    assert _correct(separator.join(said)) == 4 - len(spoiled)


@given(st.integers(0, 3).flatmap(lambda part: st.lists(st.sampled_from(RIGHT[part]), min_size=1, max_size=4)))
def test_neither_one_expression_nor_two_of_one_part_count_for_two_parts(offers):
    assert _correct("\n".join(offers)) == 1


@given(
    st.lists(_offers.filter(lambda text: text not in UNREAD), min_size=4, max_size=4),
    st.lists(_offers, max_size=6),
    _separators,
)
def test_only_as_many_offers_count_as_there_are_parts(first, more, separator):
    parts = sum(any(offer in part for offer in first) for part in RIGHT)
    assert _correct(separator.join([*first, *more])) == _correct(separator.join(first)) == parts


@given(st.text(alphabet="1234579+-*/() =;,\n×", max_size=60) | st.text(max_size=60))
@example("|")
@example(" \\\\ ")
def test_any_text_has_a_grade_and_solutions(answer):
    assert 0 <= _correct(answer) <= 4
    offered = COUNTDOWN_MINI_FOUR.solutions(FOUR, answer)
    assert offered == COUNTDOWN_MINI_SINGLE.solutions(FOUR, answer)
    assert bool(offered) is any(piece.strip() for piece in re.split(r"[\n;,|]|\\\\", answer)), "cells, lines, parts"
