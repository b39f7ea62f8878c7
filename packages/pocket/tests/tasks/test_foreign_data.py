"""Rows of somebody else: every task knows its own data, and no others."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from orgthink_pocket.tasks.arithmetic import ARITHMETIC_MINI
from orgthink_pocket.tasks.countdown_several import COUNTDOWN_MINI_FOUR
from orgthink_pocket.tasks.ledger import LEDGER_MINI
from orgthink_pocket.tasks.parts import PARTS_MINI
from orgthink_pocket.tasks.sums import SUMS_MINI


@pytest.mark.parametrize("task", [ARITHMETIC_MINI, COUNTDOWN_MINI_FOUR, LEDGER_MINI, PARTS_MINI, SUMS_MINI])
def test_a_task_knows_its_data(task: Any) -> None:
    assert all(task.fits(problem.data) for problem in islice(task.problems("train", 0), 20))


@pytest.mark.parametrize(
    ("task", "data"),
    [
        (ARITHMETIC_MINI, {}),
        (ARITHMETIC_MINI, {"value": None}),
        (SUMS_MINI, {"value": "5"}),
        (PARTS_MINI, {"values": None}),
        (PARTS_MINI, {"values": ["5"]}),
        (COUNTDOWN_MINI_FOUR, {}),
        (COUNTDOWN_MINI_FOUR, {"parts": [7]}),
        (COUNTDOWN_MINI_FOUR, {"parts": [{"numbers": [1, 2]}]}),
    ],
)
def test_what_is_none_of_it_is_refused(task: Any, data: dict[str, Any]) -> None:
    """With `None` as the value, whatever is no number was right."""
    assert not task.fits(data)
