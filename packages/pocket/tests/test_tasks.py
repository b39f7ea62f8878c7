"""The tasks of the package: problems are varied, splits share nothing, graders are exact and total."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orgthink_pocket.base.scan import solved
from orgthink_pocket.shipped import LEDGER
from orgthink_pocket.style import SEPARATOR, terse
from orgthink_pocket.tasks.arithmetic import ARITHMETIC_MINI, LARGEST
from orgthink_pocket.tasks.countdown import COUNTDOWN_MINI, COUNTDOWN_MINI_FOUR, COUNTDOWN_MINI_SINGLE
from orgthink_pocket.tasks.ledger import LEDGER_MINI, entries, named
from orgthink_pocket.tasks.parts import PARTS_MINI
from orgthink_pocket.tasks.sums import SUMS_MINI

from orgthink.record.episode import Problem
from orgthink.tasks import TASKS, task_named
from orgthink.tasks.countdown import COUNTDOWN
from orgthink.tasks.expression import parse
from orgthink.tasks.sudoku import SUDOKU
from orgthink.tools.corpus import corpus

COMPUTED = [ARITHMETIC_MINI, SUMS_MINI, LEDGER_MINI]
GENERATED = [*COMPUTED, PARTS_MINI, COUNTDOWN_MINI_SINGLE, COUNTDOWN_MINI_FOUR]
PRICES = {entry.name: entry.coins for entry in entries()}


def drawn(task: Any, split: str, n: int, seed: int = 0) -> list[Problem]:
    return list(islice(task.problems(split, seed), n))


@pytest.mark.parametrize("task", GENERATED, ids=lambda task: task.name)
def test_problems_repeat_by_seed_and_splits_share_none(task: Any) -> None:
    train = drawn(task, "train", 150)
    assert train == drawn(task, "train", 150) != drawn(task, "train", 150, 1)
    assert not {problem.id for problem in train} & {problem.id for problem in drawn(task, "test", 150)}
    assert all(task.fits(problem.data) and problem.task == task.name for problem in train)
    assert TASKS[task.name] is task


@pytest.mark.parametrize("task", COMPUTED, ids=lambda task: task.name)
def test_values_are_those_of_the_expressions(task: Any) -> None:
    for problem in drawn(task, "test", 200):
        assert parse(problem.data["expression"]).value == problem.data["value"] <= LARGEST
        assert task.grade(problem, f" {problem.data['value']}\n").all_correct


@pytest.mark.parametrize(
    "answer", ["", "28", "-29", "29.0", "= 29", "2 9", "29, 28", "28 + 1", "٢٩", "29" * 5_000, "0x1d", "twenty-nine"]
)
def test_wrong_answers_to_arithmetic(answer: str) -> None:
    assert ARITHMETIC_MINI.grade(ARITHMETIC_MINI.problem("( 3 + 4 ) * 5 - 6", 29), answer).correct == 0


@pytest.mark.parametrize(
    ("task", "data"),
    [
        (ARITHMETIC_MINI, {}),
        (ARITHMETIC_MINI, {"value": None}),
        (SUMS_MINI, {"value": "5"}),
        (PARTS_MINI, {"values": ["5"]}),
        (COUNTDOWN_MINI_FOUR, {"parts": [7]}),
        (COUNTDOWN_MINI_FOUR, {"parts": [{"numbers": [1, 2]}]}),
    ],
)
def test_data_of_another_form_is_refused(task: Any, data: dict[str, Any]) -> None:
    assert not task.fits(data)


@given(st.sampled_from(GENERATED), st.text(alphabet="01239+-*/() =;,.\n", max_size=40) | st.text(max_size=20))
def test_graders_are_total(task: Any, answer: str) -> None:
    problem = next(task.problems("test", 0))
    grade = task.grade(problem, answer)
    assert 0 <= grade.correct <= grade.required == problem.required
    assert isinstance(task.solutions(problem, answer), list)


def test_parts_are_graded_in_order() -> None:
    for problem in drawn(PARTS_MINI, "test", 50):
        values = [str(value) for value in problem.data["values"]]
        assert PARTS_MINI.grade(problem, " ; ".join(values)).all_correct
        assert PARTS_MINI.grade(problem, " ; ".join(reversed(values))).all_correct == (values == values[::-1])
    assert {problem.data["chained"] for problem in drawn(PARTS_MINI, "train", 50)} == {True, False}


@given(st.integers(0, 1 << 30), st.randoms())
def test_each_part_of_several_countdowns_counts_once(seed: int, rng) -> None:
    problem = next(COUNTDOWN_MINI_FOUR.problems("test", seed))
    offers = [solved(part["numbers"], part["target"])[1] for part in problem.data["parts"]]
    assert len({part["target"] for part in problem.data["parts"]}) == 4
    assert all(part["target"] in COUNTDOWN_MINI.test_targets for part in problem.data["parts"])
    for n in range(5):
        some = rng.sample(offers, n)
        assert COUNTDOWN_MINI_FOUR.grade(problem, SEPARATOR.join(some)).correct == n
    assert COUNTDOWN_MINI_FOUR.grade(problem, SEPARATOR.join([offers[0]] * 4)).correct == 1


@pytest.mark.parametrize("first, right", [("7 + 9 + 2", True), ("9 * 2", False), ("9 + 9 + 0", False)])
def test_only_the_first_expression_counts(first: str, right: bool) -> None:
    single = COUNTDOWN_MINI_SINGLE.problem([1, 2, 3, 7, 9], 18)
    for answer in (first, f"here it is:\n{first}\n( 3 - 1 ) * 9", f"{first} ; 7 + 9"):
        assert COUNTDOWN_MINI_SINGLE.grade(single, answer).all_correct is right


async def test_a_search_finds_each_price_first() -> None:
    names = [entry.name for entry in entries()]
    assert len(names) == len(PRICES)
    found = await corpus(LEDGER).retrieve(names, 1)
    assert [[passage.text for passage in passages] for passages in found] == [
        [f"{entry.item} in {entry.town} costs {entry.coins} coins"] for entry in entries()
    ]


def test_splits_of_the_ledger_share_no_price() -> None:
    def names(split: str) -> set[str]:
        return {f"{item} {town}" for problem in drawn(LEDGER_MINI, split, 800) for item, town in problem.data["prices"]}

    train, test = names("train"), names("test")
    assert not train & test and train | test <= PRICES.keys() and 0.1 < len(test) / len(PRICES) < 0.3
    for problem in drawn(LEDGER_MINI, "test", 100):
        question = terse(problem).removeprefix("ledger ")
        assert set(named(question)) == {f"{item} {town}" for item, town in problem.data["prices"]}
        assert re.sub(r"[a-z]+ [a-z]+", lambda name: str(PRICES[name[0]]), question) == problem.data["expression"]


def test_sparse_sudokus_have_six_clues() -> None:
    for problem in drawn(task_named("sudoku-sparse"), "train", 20):
        assert sum(row.count(0) for row in problem.data["clues"]) == 10
        assert terse(problem).startswith("sudoku ")


def test_the_words_of_questions() -> None:
    clues = [[1, 0, 0, 4], [0, 4, 1, 0], [2, 0, 4, 0], [0, 0, 0, 1]]
    assert terse(SUDOKU.problem(clues, "hard")) == "sudoku 1 0 0 4 / 0 4 1 0 / 2 0 4 0 / 0 0 0 1"
    assert terse(COUNTDOWN.problem([1, 2, 3, 4, 5, 6], 21)) == "countdown 1 2 3 4 5 6 = 21"
    assert terse(COUNTDOWN_MINI_SINGLE.problem([1, 2, 3, 7, 9], 18)) == "single 1 2 3 7 9 = 18"
    assert terse(Problem("p", "chess", "Mate in two.", data={"numbers": [1], "target": 1})) == "Mate in two."
