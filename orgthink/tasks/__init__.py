"""Tasks: problems and exact graders, by name."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from orgthink.record.episode import Problem
from orgthink.tasks.combined import GradedBy, Grader, Part, TaskMixture, part_of
from orgthink.tasks.hub import hub_files
from orgthink.tasks.rows import RowTask, guessed
from orgthink.tasks.task import PlainTask, Solution, Split, Task, TaskFamily, of_both
from orgthink.util.errors import UserError, pick, user_input
from orgthink.util.references import is_reference, references
from orgthink.util.registry import Registry, made
from orgthink.util.tabular import TABLES

__all__ = [
    "TASKS",
    "Grader",
    "Solution",
    "Split",
    "Task",
    "is_task",
    "task_named",
    "task_of",
]


def _entry(found: Any) -> Any:
    """A task, a family, or a function; `None` for anything else."""
    found = made(found)
    if all(hasattr(found, name) for name in ("name", "problems", "grade")):
        return found if isinstance(found, type | Task) else PlainTask(found)
    return found if callable(found) else None


TASKS: Registry[Any] = Registry(
    "task",
    "orgthink.tasks",
    {
        "countdown": "orgthink.tasks.countdown:COUNTDOWN",
        "countdown-small": "orgthink.tasks.countdown_small:COUNTDOWN_SMALL",
        "countdown-all": "orgthink.tasks.countdown_small:COUNTDOWN_ALL",
        "sudoku": "orgthink.tasks.sudoku:SUDOKU",
        "sudoku-six": "orgthink.tasks.sudoku_six:SUDOKU_SIX",
        "math": "orgthink.tasks.math:MATH",
        "verl": "orgthink.tasks.verl_data:VerlData",
        "exact": "orgthink.tasks.rows:EXACT",
        "contains": "orgthink.tasks.rows:CONTAINS",
        "choice": "orgthink.tasks.rows:CHOICE",
        "code": "orgthink.tools.code_task:CODE",
        "judge": "orgthink.evaluation.judge:Judge",
        "strict": "orgthink.tasks.countdown:strict",
    },
    "an object or a class with name, problems and grade, a function from a file to a task, or a grader",
    _entry,
)
"""Everything that a task's name is made of.

NAME            a task: it grades the problems that name it
FILE            the rows of a table (.jsonl, .json, .csv, .parquet): their answers decide the grader, or FILE#GRADER
hf:NAME         the same for a data set of the hub; hf:NAME:CONFIG for one of its configurations
NAME:FILE       the task with the rows of a file as problems: `task.of_file(path)`, or a function from a path to a task
FAMILY:MEMBER   a task of a family, such as `gym:NAME`: the family is called with the member's name
TASK#GRADER     a task with another grader: a function of a problem and an answer, or a task, or judge=MODEL@URL
"""


def is_task(name: str) -> bool:
    """Whether an installed task has this name."""
    return name in TASKS and not is_reference(name) and isinstance(TASKS[name], Task)


_opened: dict[str, Task] = {}
"""Tasks that this process has looked up, by name."""


def task_named(name: str) -> Task:
    """The task `NAME`, `FAMILY:MEMBER` or `NAME:FILE`. Several tasks joined by `+` are a mixture.

    `#GRADER` replaces the grader, and `@I/N` at the end is part I of N. So names of files contain neither `+` nor `#`.

    UserError if there is no such task. The file is read when problems are drawn.
    """
    with user_input():
        whole, part = part_of(name)
        problems, _, named = whole.partition("#")
        grader = _grader(named) if named else None
        tasks = [_remembered(_single(one, grader)) for one in problems.split("+")]
        task = TaskMixture(*tasks) if len(tasks) > 1 else tasks[0]
        if grader is not None and type(task) is not type(grader):  # rows are read for their grader
            task = GradedBy(task, grader, named)
        return _remembered(task if part is None else Part(task, *part))


def task_of(problem: Problem) -> Task | None:
    """The task of a problem; `None` if it is unknown, as for a question from the command line."""
    if problem.task in _opened:
        return _opened[problem.task]
    if any(references(problem.task)):  # the record may come from elsewhere, and a reference would be executed
        return None
    if is_task(problem.task):
        return TASKS[problem.task]
    try:
        return _member(problem.task)
    except UserError:
        return None


def file_of(name: str) -> Path | None:
    """The first file with problems of a task, by the task's name; `None` without one, or if it does not exist."""
    names = part_of(name)[0].partition("#")[0].split("+")
    behind = (one[start.end() :] for one in names for start in re.finditer("^|:", one))
    return next((Path(file) for file in behind if os.path.isfile(file)), None)


def _grader(name: str) -> Grader | Task:
    kind, equals, value = name.partition("=")
    found = pick("grader", kind if equals else name, TASKS)
    if isinstance(found, type) and equals:
        found = _remembered(found(value))
    if not isinstance(found, Task) and (not callable(found) or isinstance(found, type | TaskFamily)):
        raise UserError(f"{name} is not a grader: it must be a function of a problem and an answer, or a task")
    return found


def _member(name: str) -> Task | None:
    """The task of `FAMILY:MEMBER`, whose member may be a reference; `None` for another name."""
    family, colon, member = name.partition(":")
    found = TASKS[family] if colon and family in TASKS and not is_reference(family) else None
    return found(member) if isinstance(found, TaskFamily) else None


def _single(name: str, grader: Grader | Task | None) -> Task:
    """The task `NAME`, `FAMILY:MEMBER`, `NAME:FILE` or the rows of a table for this grader, or else for the one that
    they ask for; the name may be a reference. UserError for anything else."""
    if name.startswith("hf:") or (name.endswith(TABLES) and ":" not in name):
        files = hub_files(name[3:]) if name.startswith("hf:") else of_both(Path(name))
        rows = grader if isinstance(grader, RowTask) else TASKS[guessed(files["test"][0])]
        return rows.of_files(files)
    if (member := _member(name)) is not None:
        return member
    start = name.find(":", name.find(".py:") + 4) if ".py:" in name else name.find(":")
    with_file = start > 0 and name not in TASKS
    found = TASKS.named(name[:start] if with_file else name)
    if with_file:
        make = getattr(found, "of_file", found)
        if not callable(make):
            raise UserError(f"the task {name[:start]} takes no file")
        found = make(Path(name[start + 1 :]))
    if isinstance(found, TaskFamily):
        raise UserError(f"{name} is a family of tasks: `orgthink list {name}` lists them")
    if isinstance(found, type) or not hasattr(found, "grade"):
        raise UserError(f"{name} is not a task: it must be {TASKS.form}")
    return found


def _remembered(task: Task) -> Task:
    _opened[task.name] = task
    return task
