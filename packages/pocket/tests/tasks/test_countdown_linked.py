"""Linked countdowns: a name stands for what every solution of another countdown leaves over."""

from __future__ import annotations

import re
from itertools import combinations, islice, permutations, product

import pytest
from orgthink_pocket.base import style as base
from orgthink_pocket.tasks.countdown import COUNTDOWN_MINI
from orgthink_pocket.tasks.countdown_linked import (
    COUNTDOWN_MINI_LINKED,
    COUNTDOWN_MINI_LINKED_CHAINED,
    SINGLE,
    USED,
    as_given,
)

from orgthink.record.episode import Problem
from orgthink.tasks import TASKS

PROBLEMS = [problem for split in ("train", "test") for problem in islice(COUNTDOWN_MINI_LINKED.problems(split, 1), 8)]


def solutions(part: dict) -> list[tuple[str, set[int]]]:
    """Expressions of three numbers that the task of one countdown takes, and their numbers."""
    problem = SINGLE.problem(part["numbers"], part["target"])
    found = []
    for a, b, c in (order for three in combinations(part["numbers"], USED) for order in permutations(three)):
        for p, q in product("+-*/", repeat=2):
            for text in (f"({a} {p} {b}) {q} {c}", f"{a} {p} ({b} {q} {c})"):
                if SINGLE.grade(problem, text).all_correct:
                    found.append((text, {a, b, c}))
    return found


def test_it_has_names():
    assert TASKS["countdown-mini-linked"] is COUNTDOWN_MINI_LINKED
    assert TASKS["countdown-mini-linked-chained"] is COUNTDOWN_MINI_LINKED_CHAINED


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id[-20:])
def test_every_solution_leaves_what_the_next_countdown_needs(problem: Problem):
    left: dict[str, int] = {}
    for part in problem.data["parts"]:
        rest = {min(set(part["numbers"]) - numbers) for _, numbers in solutions(part)}
        assert rest == {part["left"]}
        left[part["name"]] = part["left"]
        if part["needs"]:
            assert all(left[part["needs"]] in numbers for _, numbers in solutions(part)), "no solution without it"
        assert part["needs"] in (None, *left) and part["needs"] != part["name"]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id[-20:])
def test_the_question_hides_what_is_needed_behind_a_name(problem: Problem):
    for part in problem.data["parts"]:
        listed = f"{part['name']}: {', '.join(as_given(problem.data['parts'], part))}. Target: {part['target']}."
        assert listed in problem.text
        names = [number for number in as_given(problem.data["parts"], part) if not number.isdigit()]
        assert names == ([part["needs"]] if part["needs"] else [])
    assert "left" not in problem.text.partition("\n")[2]
    assert re.findall(r"(\w+) :", base.terse(problem)) == [part["name"] for part in problem.data["parts"]]


def test_targets_are_those_of_the_split():
    for i, problem in enumerate(PROBLEMS):
        for part in problem.data["parts"]:
            assert (part["target"] in COUNTDOWN_MINI.test_targets) == (i >= 8)


def test_chains_have_one_length_and_each_number_of_them_occurs():
    kinds = set()
    for problem in islice(COUNTDOWN_MINI_LINKED.problems("train", 0), 40):
        parts = problem.data["parts"]
        starts = sum(part["needs"] is None for part in parts)
        needed = [part["needs"] for part in parts if part["needs"]]
        assert starts == problem.data["chains"] and len(needed) == len(set(needed)) == 6 - starts
        ends = {part["name"] for part in parts} - set(needed)
        needs = {part["name"]: part["needs"] for part in parts}
        assert {_length(end, needs) for end in ends} == {6 // starts}
        kinds.add(starts)
    assert kinds == {1, 2, 3, 6}
    assert next(COUNTDOWN_MINI_LINKED_CHAINED.problems("test", 0)).data["chains"] == 1


def _length(name: str, needs: dict[str, str | None]) -> int:
    before = needs[name]
    return 1 if before is None else 1 + _length(before, needs)


def test_each_countdown_is_graded_with_numbers_in_place_of_names():
    problem = PROBLEMS[0]
    right = [solutions(part)[0][0] for part in problem.data["parts"]]
    assert COUNTDOWN_MINI_LINKED.grade(problem, "\n".join(right)).correct == 6
    assert COUNTDOWN_MINI_LINKED.grade(problem, "\n".join([*right[:5], "1 + 1"])).correct == 5
    assert COUNTDOWN_MINI_LINKED.fits(problem.data)
