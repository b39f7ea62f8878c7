"""Tasks: problems and exact graders, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from orgthink.errors import pick, user_input
from orgthink.tasks.arithmetic import ARITHMETIC_MINI
from orgthink.tasks.countdown import COUNTDOWN, COUNTDOWN_MINI, COUNTDOWN_MINI_SINGLE
from orgthink.tasks.countdown_several import COUNTDOWN_MINI_FOUR
from orgthink.tasks.ledger import LEDGER_MINI
from orgthink.tasks.math import MATH, Math
from orgthink.tasks.mixture import Mixture
from orgthink.tasks.part import Part, part_of
from orgthink.tasks.sudoku import SUDOKU
from orgthink.tasks.task import Task
from orgthink.tasks.verl_data import VerlData

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        COUNTDOWN,
        COUNTDOWN_MINI,
        COUNTDOWN_MINI_SINGLE,
        COUNTDOWN_MINI_FOUR,
        SUDOKU,
        ARITHMETIC_MINI,
        LEDGER_MINI,
        MATH,
    )
}
"""Each grades the problems that name it."""

FROM_FILE: dict[str, Callable[[Path], Task]] = {"math": Math, "verl": lambda file: VerlData(file, TASKS)}
"""Those whose problems are a file's."""


def task_named(name: str) -> Task:
    """The task of a name, or of `NAME:FILE`; of several names joined by `+`, their mixture, the last with its file; and
    with `@I/N` behind all that, part I of N.

    UserError if there is no such task; the file is read when problems are asked for.
    """
    with user_input():
        whole, part = part_of(name)
        return _whole(whole) if part is None else Part(_whole(whole), *part)


def _whole(name: str) -> Task:
    names, colon, file = name.partition(":")
    *others, last = names.split("+")
    own = pick("task with a file", last, FROM_FILE)(Path(file)) if colon else pick("task", last, TASKS)
    return Mixture(*(pick("task", other, TASKS) for other in others), own) if others else own
