"""Questions of the core's tasks in the words of the pocket models."""

from __future__ import annotations

from dataclasses import replace

from orgthink_pocket.style import terse

from orgthink.record.episode import Problem
from orgthink.tasks.countdown import COUNTDOWN
from orgthink.tasks.sudoku import SUDOKU

CLUES = [[1, 0, 0, 4], [0, 4, 1, 0], [2, 0, 4, 0], [0, 0, 0, 1]]


def test_core_tasks_have_terse_words():
    assert terse(SUDOKU.problem(CLUES, "hard")) == "sudoku 1 0 0 4 / 0 4 1 0 / 2 0 4 0 / 0 0 0 1"
    assert terse(COUNTDOWN.problem([1, 2, 3, 4, 5, 6], 21)) == "countdown 1 2 3 4 5 6 = 21"


def test_what_they_do_not_know_stays_as_it_is():
    assert terse(Problem("p", "chess", "Mate in two.", data={"numbers": [1], "target": 1})) == "Mate in two."
    subtask = replace(COUNTDOWN.problem([1, 2, 3, 4, 5, 6], 21), text="try 6", data={})
    assert terse(subtask) == "try 6", "a part of a problem has words of its own"
