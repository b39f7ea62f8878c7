"""Tasks: problems and exact graders, by name."""

from __future__ import annotations

from orgthink.tasks.arithmetic import ARITHMETIC_MINI
from orgthink.tasks.countdown import COUNTDOWN, COUNTDOWN_MINI
from orgthink.tasks.sudoku import SUDOKU
from orgthink.tasks.task import Task

TASKS: dict[str, Task] = {task.name: task for task in (COUNTDOWN, COUNTDOWN_MINI, SUDOKU, ARITHMETIC_MINI)}
