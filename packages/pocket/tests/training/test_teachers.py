"""What the pocket model imitates: right, short, in its own words, and every step follows from what is written."""

from __future__ import annotations

import re
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orgthink_pocket.style import terse
from orgthink_pocket.teachers import arithmetic, sudoku

from orgthink.tasks import TASKS

TEACHERS = {"sudoku": sudoku, "arithmetic-mini": arithmetic}


def _problems(name: str, n: int, seed: int = 0, split: str = "train"):
    return islice(TASKS[name].problems(split, seed), n)


@pytest.mark.parametrize("name", TEACHERS)
@pytest.mark.parametrize("split", ["train", "test"])
def test_always_right_and_short_and_in_the_tiny_vocabulary(name, split):
    teacher = TEACHERS[name]
    for problem in _problems(name, 800, split=split):
        thinking, answer = teacher.solve(problem.data)
        assert TASKS[name].grade(problem, answer).all_correct
        assert len(thinking.split()) <= 120
        for token in f"{terse(problem)} {thinking} {answer}".split():
            assert token in (*teacher.WORDS, *"+-*/()=;.") or (token.isdigit() and int(token) < 400)


@pytest.mark.parametrize("name", TEACHERS)
def test_a_problem_is_left_as_it_was_and_solved_alike(name):
    for problem in _problems(name, 20):
        before = repr(problem.data)
        assert TEACHERS[name].solve(problem.data) == TEACHERS[name].solve(problem.data)
        assert repr(problem.data) == before


def test_arithmetic_steps():
    data = {"expression": "( 3 + 4 ) * 5 - ( 6 - 2 - 1 )"}
    assert arithmetic.solve(data) == (
        "3 + 4 = 7 ; 7 * 5 - ( 6 - 2 - 1 ) ; 7 * 5 = 35 ; 35 - ( 6 - 2 - 1 ) ; 6 - 2 = 4 ; 35 - ( 4 - 1 ) ; "
        "4 - 1 = 3 ; 35 - 3 ; 35 - 3 = 32",
        "32",
    )


@pytest.mark.parametrize(
    ("expression", "first"),
    [
        ("9 - 4 - 3", "9 - 4 = 5"),
        ("2 + 3 * 4", "3 * 4 = 12"),
        ("2 * 3 * 4", "2 * 3 = 6"),
        ("9 - 2 * 3 * 1", "2 * 3 = 6"),
        ("1 + ( 2 + 3 )", "2 + 3 = 5"),
        ("2 * ( 3 + 4 * 5 )", "4 * 5 = 20"),
        ("1 + 2 - 3 * 4", "1 + 2 = 3"),
    ],
)
def test_what_arithmetic_does_first(expression, first):
    assert arithmetic.solve({"expression": expression})[0].split(" ; ")[0] == first


def test_arithmetic_keeps_the_value_at_every_step():
    for problem in _problems("arithmetic-mini", 500):
        thinking, answer = arithmetic.solve(problem.data)
        for line in thinking.split(" ; "):
            left, equals, right = line.partition("=")
            assert eval(left) == (int(right) if equals else problem.data["value"])
        assert thinking.endswith(f"= {answer}")


@given(
    st.recursive(
        st.integers(1, 20).map(str), lambda part: st.builds("( {} {} {} )".format, part, st.sampled_from("+*"), part)
    )
)
def test_arithmetic_of_any_full_parentheses(expression):
    assert arithmetic.solve({"expression": expression})[1].strip("( )") == str(eval(expression))


STEP = re.compile(r"cell (\d) (\d) not ((?:\d )+)= (\d)")


def test_sudoku_steps_follow_from_what_is_written():
    for problem in _problems("sudoku", 500):
        thinking, answer = sudoku.solve(problem.data)
        grid = [list(row) for row in problem.data["clues"]]
        for step in thinking.split(" ; "):
            i, j, seen, digit = STEP.fullmatch(step).groups()
            i, j, digit = int(i) - 1, int(j) - 1, int(digit)
            assert grid[i][j] == 0
            assert {int(d) for d in seen.split()} == _seen(grid, i, j) and digit not in _seen(grid, i, j)
            if len(_seen(grid, i, j)) < 3:  # a guess, only where no cell has a single candidate
                assert all(len(_seen(grid, x, y)) < 3 for x in range(4) for y in range(4) if not grid[x][y])
            grid[i][j] = digit
        assert answer == " / ".join(" ".join(map(str, row)) for row in grid)


def _seen(grid, i, j) -> set[int]:
    box = [grid[x][y] for x in range(4) for y in range(4) if x // 2 == i // 2 and y // 2 == j // 2]
    return {*grid[i], *(row[j] for row in grid), *box} - {0}


@pytest.mark.parametrize(
    "clues",
    [
        [[0, 0, 4, 0], [0, 0, 0, 0], [0, 2, 1, 4], [0, 0, 0, 2]],
        [[0, 0, 0, 2], [0, 0, 0, 0], [0, 0, 4, 0], [3, 4, 2, 0]],
    ],
)
def test_sudoku_where_the_smallest_candidate_leads_nowhere(clues):
    problem = TASKS["sudoku"].problem(clues, "hard")
    assert TASKS["sudoku"].grade(problem, sudoku.solve(problem.data)[1]).all_correct


def test_sudoku_without_clues_and_without_a_grid():
    _, answer = sudoku.solve({"clues": [[0] * 4] * 4})
    assert answer.startswith("1 2 3 4 / 3 4 1 2")
    with pytest.raises(ValueError, match="no grid"):
        sudoku.solve({"clues": [[1, 2, 3, 0], [0, 0, 0, 4], [0] * 4, [0] * 4]})
