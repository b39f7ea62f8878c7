"""`countdown-small`: problems of every size, each with its solutions in a scan."""

from __future__ import annotations

from itertools import combinations, islice, permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.tasks import task_named
from orgthink.tasks.countdown_small import GIVEN, REQUIRED, counts, scan
from orgthink.tasks.expression import ExpressionError, parse

TASK = task_named("countdown-small")


def solutions(numbers: list[int], target: int) -> list[str]:
    return [found for first in numbers for _, found in scan(numbers, target, first) if found is not None]


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_problem_of_each_size_has_its_solutions(split):
    sizes = set()
    for problem in islice(TASK.problems(split, 1), 150):
        numbers, target = problem.data["numbers"], problem.data["target"]
        sizes.add((len(numbers), problem.required))
        found = solutions(numbers, target)
        assert TASK.grade(problem, "\n".join(found[: problem.required])).all_correct
        assert not TASK.grade(problem, "\n".join(found[: problem.required - 1])).all_correct
        assert str(problem.required) in problem.instruction or problem.required == 1
    assert sizes == set(product(GIVEN, REQUIRED))


def test_problems_are_a_function_of_the_seed_and_targets_are_held_out():
    train, again, other = (list(islice(TASK.problems("train", seed), 100)) for seed in (1, 1, 2))
    assert [p.id for p in train] == [p.id for p in again] != [p.id for p in other]
    test = {p.data["target"] for p in islice(TASK.problems("test", 1), 200)}
    assert test <= TASK.test_targets and not test & {p.data["target"] for p in train}


@given(st.sets(st.integers(1, 30), min_size=4, max_size=6).map(sorted), st.integers(10, 100))
def test_a_scan_finds_each_solution_that_ends_with_a_sum_or_a_difference_once(numbers, target):
    found = [parse(text).key for text in solutions(numbers, target)]
    assert len(found) == len(set(found)) == counts(numbers)[target]
    assert all(parse(text).value == target for text in solutions(numbers, target))
    every = set()
    for three in combinations(numbers, 3):
        for (a, b, c), one, other in product(permutations(three), "+-*/", "+-"):
            expression = parse(f"{a}{one}{b}{other}{c}")
            whole = a % b == 0 and b > 1 if one == "/" else one != "*" or (min(a, b) > 1 and a * b <= 130)
            if expression.value == target and whole:
                every.add(expression.key)
    assert set(found) == every


@given(st.sets(st.integers(1, 30), min_size=4, max_size=6).map(sorted), st.integers(10, 100))
def test_each_line_is_two_true_equations(numbers, target):
    for first in numbers:
        for line, _ in scan(numbers, target, first):
            for equation in line.split(","):
                left, _, right = equation.partition("=")
                try:
                    assert parse(left).value == int(right)
                except ExpressionError:
                    pytest.fail(f"{equation} cannot be read")
