from __future__ import annotations

import re
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orgthink_pocket.style import terse
from orgthink_pocket.tasks.arithmetic import ARITHMETIC_MINI, LARGEST, LARGEST_OPERAND, OPERANDS

from orgthink.tasks import TASKS
from orgthink.tasks.expression import parse

PROBLEM = ARITHMETIC_MINI.problem("( 3 + 4 ) * 5 - 6", 29)


def _split(split: str, n: int, seed: int = 0):
    return list(islice(ARITHMETIC_MINI.problems(split, seed), n))


def test_words():
    assert terse(PROBLEM) == "arithmetic ( 3 + 4 ) * 5 - 6"
    assert PROBLEM.id == "arithmetic-mini/(3+4)*5-6"


def _parts(expression: str) -> list[int]:
    """Values of the expression and of everything between its parentheses, by python's own reading."""
    values, open_at = [eval(expression)], []
    for i, character in enumerate(expression):
        if character == "(":
            open_at.append(i)
        elif character == ")":
            values.append(eval(expression[open_at.pop() : i + 1]))
    return values


@pytest.mark.parametrize("split", ["train", "test"])
def test_problems(split):
    for problem in _split(split, 1000):
        expression, value = problem.data["expression"], problem.data["value"]
        assert parse(expression).value == value == eval(expression)
        assert OPERANDS[0] <= len(parse(expression).numbers) <= OPERANDS[1]
        assert all(1 <= number <= LARGEST_OPERAND for number in parse(expression).numbers)
        assert all(0 <= part <= LARGEST for part in _parts(expression))
        assert set(expression) <= set("0123456789 +-*()")


def test_problems_are_varied():
    problems = _split("train", 1000)
    values = [problem.data["value"] for problem in problems]
    assert len({problem.id for problem in problems}) > 990 and len(set(values)) > 200
    assert max(values.count(value) for value in values) < 30
    for part in ("(", "+", "-", "*"):
        assert sum(part in problem.data["expression"] for problem in problems) > 300
    for shape in (r"\* \( \d+ \* \d+ \)", r"\+ \( \d+ \+ ", r"- \( \d+ - ", r"\( \d+ \+ \d+ \) \*"):
        assert any(re.search(shape, problem.data["expression"]) for problem in problems)


def test_held_out_expressions():
    train, test = ({problem.id for problem in _split(split, 2000, 1)} for split in ("train", "test"))
    assert not train & test


@pytest.mark.parametrize("split", ["train", "test"])
def test_problems_are_the_same_for_the_same_seed(split):
    assert _split(split, 30, 5) == _split(split, 30, 5) != _split(split, 30, 6)


@pytest.mark.parametrize("answer", ["29", " 29 ", "29\n", "\t29", "029"])
def test_right_answers(answer):
    assert ARITHMETIC_MINI.grade(PROBLEM, answer).all_correct


@pytest.mark.parametrize(
    "answer",
    ["", "28", "-29", "+29", "29.", "29.0", "= 29", "2 9", "29 30", "29, 28", "29 or 28", "( 3 + 4 ) * 5 - 6", "28 + 1",
     "٢٩", "２９", "29" * 5_000, "0x1d", "29e0", "twenty-nine"],
)  # fmt: skip
def test_wrong_answers(answer):
    assert ARITHMETIC_MINI.grade(PROBLEM, answer).correct == 0


@given(st.text(alphabet="0129 +-.\n", max_size=8) | st.text(max_size=20))
def test_the_grader_is_total(answer):
    assert ARITHMETIC_MINI.grade(PROBLEM, answer).required == 1
    assert len(ARITHMETIC_MINI.solutions(PROBLEM, answer)) == bool(answer.strip())


def test_tasks_are_found_by_their_names():
    assert {"countdown", "countdown-mini", "sudoku", "arithmetic-mini"} <= TASKS.keys()
    assert all(
        task.name == name == next(task.problems("test", 0)).task for name, task in TASKS.items() if name != "math"
    )
