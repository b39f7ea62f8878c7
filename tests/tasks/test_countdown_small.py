"""Countdowns for small models: problems of every size, each with its solutions in a scan."""

from __future__ import annotations

from collections import Counter
from itertools import chain, combinations, islice, permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.tasks import task_named
from orgthink.tasks.countdown_small import GIVEN, REQUIRED, counts, scan, solutions
from orgthink.tasks.expression import ExpressionError, parse

TASK = task_named("countdown-small")
ALL = task_named("countdown-all")


def test_a_problem_of_each_size_has_its_solutions():
    sizes = set()
    for problem in chain(*(islice(TASK.problems(split, 1), 150) for split in ("train", "test"))):
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


@pytest.mark.parametrize("split", ["train", "test"])
def test_countdown_all_has_each_number_of_solutions_and_does_not_tell_it(split):
    problems = list(islice(ALL.problems(split, 1), 300))
    sizes = Counter((len(problem.data["numbers"]), problem.required) for problem in problems)
    assert sizes.keys() == {(given, required) for given in (3, *GIVEN) for required in range(1, given - 1)}
    assert len({problem.instruction for problem in problems}) == 1
    assert {problem.data["target"] in TASK.test_targets for problem in problems} == {split == "test"}
    for problem in problems:
        found = solutions(**problem.data)
        assert len(found) == problem.required
        assert ALL.grade(problem, "\n".join(reversed(found))).all_correct
        assert ALL.grade(problem, "\n".join(found[1:])).correct == problem.required - 1


def test_a_line_of_countdown_all_that_is_no_solution_costs_one():
    """The number of solutions is not told, so that it must not pay to offer many expressions."""
    problem = ALL.problem([2, 5, 15, 30], 40)  # 5*2+30, 30+15-5
    right = solutions(**problem.data)
    assert len(right) == problem.required == 2, right

    def correct(*lines: str) -> int:
        return ALL.grade(problem, "\n".join(lines)).correct

    assert correct(*right) == correct("All ways:", *right, f"{right[0]} = 40", "none other") == 2
    for wrong in ("15+5+2", "15+5+2 = 40", "(15+5)*2", "30+15-10/2", "5*8", "30+10", "15-5+30*1", "40", "5+"):
        assert correct(*right, wrong) == 1, wrong
        assert correct(right[0], wrong) == correct(*right, wrong, wrong, wrong) == 0
    assert correct("none") == correct("") == 0
    every = [
        f"{a}{one}{b}{other}{c} = 40" for a, b, c in permutations([2, 5, 15, 30], 3) for one in "+-*/" for other in "+-"
    ]
    assert correct(*every) == 0, "all expressions, as equations that cannot all be read"
