"""`parts-mini`: independent values and chains, in three mixtures with one split into training and held-out problems."""

from __future__ import annotations

from itertools import islice

import pytest
from orgthink_pocket.base.style import terse
from orgthink_pocket.tasks.parts import PARTS_MINI, PARTS_MINI_CHAINED, PARTS_MINI_INDEPENDENT, PartsMini

from orgthink.tasks import task_named
from orgthink.tasks.task import in_split


@pytest.mark.parametrize(("task", "kinds"), [(PARTS_MINI_INDEPENDENT, {False}), (PARTS_MINI_CHAINED, {True})])
def test_each_has_its_kind_of_problems_under_the_ids_of_the_mixture(task: PartsMini, kinds: set[bool]):
    assert task_named(task.name) == task
    found = list(islice(task.problems("test", 0), 30))
    assert {problem.data["chained"] for problem in found} == kinds
    for problem in found:
        assert problem.id.startswith("parts-mini/") and in_split(problem.id, "test")
        assert terse(problem).startswith("parts ")
        assert task.grade(problem, " ; ".join(map(str, problem.data["values"]))).all_correct


def test_the_mixture_has_both():
    assert {problem.data["chained"] for problem in islice(PARTS_MINI.problems("train", 0), 30)} == {False, True}
