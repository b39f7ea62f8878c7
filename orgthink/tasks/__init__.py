"""Tasks: problems and exact graders, by name."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from orgthink.record.episode import Problem
from orgthink.tasks.graded_by import GradedBy, Grader
from orgthink.tasks.mixture import TaskMixture
from orgthink.tasks.part import Part, part_of
from orgthink.tasks.task import Solution, Split, Task, TaskFamily
from orgthink.util.errors import UserError, pick, user_input
from orgthink.util.registry import Registry, is_reference, references

__all__ = [
    "FILE_TASKS",
    "GRADERS",
    "TASKS",
    "TASK_FAMILIES",
    "Grader",
    "Solution",
    "Split",
    "Task",
    "task_named",
    "task_of",
]

TASKS: Registry[Task] = Registry(
    "task",
    "orgthink.tasks",
    {
        "countdown": "orgthink.tasks.countdown:COUNTDOWN",
        "sudoku": "orgthink.tasks.sudoku:SUDOKU",
        "math": "orgthink.tasks.math:MATH",
    },
    "an object with name, problems, grade and solutions",
    lambda task: (
        not isinstance(task, type)
        and all(hasattr(task, attribute) for attribute in ("name", "problems", "grade", "solutions"))
    ),
)
"""Tasks by name. A task grades the problems that name it."""

FILE_TASKS: Registry[Callable[[Path], Task]] = Registry(
    "task with a file",
    "orgthink.file_tasks",
    {
        "math": "orgthink.tasks.math:Math",
        "sudoku": "orgthink.tasks.sudoku:Sudoku",
        "verl": "orgthink.tasks.verl_data:VerlData",
    },
    "a function from a path to a task",
    callable,
)
"""Tasks with problems from the rows of a file, such as `math:FILE`."""

TASK_FAMILIES: Registry[TaskFamily] = Registry(
    "family of tasks",
    "orgthink.task_families",
    {"parts": "orgthink.tasks.parts:PARTS"},
    "an object that is called with a name, and has lines",
    lambda family: callable(family) and not isinstance(family, type) and hasattr(family, "lines"),
)
"""Tasks that others name, such as `gym:NAME`."""

GRADERS: Registry[Grader] = Registry(
    "grader",
    "orgthink.graders",
    {
        "exact": "orgthink.tasks.graded_by:exact",
        "math": "orgthink.tasks.math:grade",
        "strict": "orgthink.tasks.countdown:strict",
    },
    "a function of a problem and an answer",
    lambda grader: callable(grader) and not isinstance(grader, type),
)
"""Functions that replace the grader of a task: `TASK#GRADER`."""

_opened: dict[str, Task] = {}
"""Tasks that this process has looked up, by name."""


def task_named(name: str) -> Task:
    """The task `NAME`, `FAMILY:MEMBER` or `NAME:FILE`. Several names joined by `+` are a mixture.

    Only the last of them may have a file. `#GRADER` after that replaces the grader, unless it belongs to the name of a
    file that exists. `@I/N` at the end is part I of N.

    UserError if there is no such task. The file is read when problems are drawn.
    """
    with user_input():
        whole, part = part_of(name)
        problems, _, grader = (whole, "", "") if _has_file(whole) else whole.partition("#")
        task = _whole(problems)
        if grader:
            task = GradedBy(task, _grader(problems, grader), grader)
        task = task if part is None else Part(task, *part)
    _opened[task.name] = task
    return task


def task_of(problem: Problem) -> Task | None:
    """The task of a problem; `None` if it is unknown, as for a question from the command line."""
    if problem.task in _opened:
        return _opened[problem.task]
    if any(references(problem.task)):  # a record may be anybody's, and a reference would be executed
        return None
    if problem.task in TASKS:
        return TASKS[problem.task]
    try:
        return _member(problem.task)
    except UserError:
        return None


def file_of(name: str) -> Path | None:
    """The file with the problems of a task, by the task's name; `None` without one, or if it does not exist."""
    whole, _ = part_of(name)
    return _file_in(whole) or _file_in(whole.partition("#")[0])


def _has_file(name: str) -> bool:
    return _file_in(name) is not None


def _file_in(name: str) -> Path | None:
    """What stands behind a colon of a name, if it is a file. Its name may hold any of `+#@`."""
    behind = (name[colon.end() :] for colon in re.finditer(":", name))
    return next((Path(file) for file in behind if os.path.isfile(file)), None)


def _grader(problems: str, name: str) -> Grader:
    try:
        return GRADERS.named(name)
    except UserError as error:
        if ":" not in problems:
            raise
        raise UserError(f"{error}; what stands behind # is a grader, unless a file has this name") from error


def _whole(name: str) -> Task:
    *others, last = _names(name)
    parts = [_remembered(_member(other) or pick("task", other, TASKS)) for other in others]
    own = _remembered(_last(last))
    return TaskMixture(*parts, own) if parts else own


def _names(name: str) -> list[str]:
    """The parts of a mixture. Behind the colon of a task with a file, a plus belongs to the file's name."""
    first, plus, rest = name.partition("+")
    file = first.partition(":")[2] if _family(first) is None else _file(first)
    if not plus or (file and not is_reference(first)):
        return [name]
    return [first, *_names(rest)]


def _family(name: str) -> TaskFamily | None:
    """The family of `FAMILY:MEMBER`, whose member may be a reference; `None` for another name."""
    family, colon, _ = name.partition(":")
    return TASK_FAMILIES[family] if colon and family in TASK_FAMILIES and not is_reference(family) else None


def _file(name: str) -> str:
    """FILE of `FAMILY:MEMBER:FILE`; empty without one. Settings of a member may hold colons."""
    member = name.partition(":")[2].partition("?")[0]
    return member.partition(":")[2]


def _member(name: str) -> Task | None:
    """The task of `FAMILY:MEMBER`; `None` for another name."""
    family = _family(name)
    return None if family is None else family(name.partition(":")[2])


def _last(name: str) -> Task:
    """A task by `NAME` or `NAME:FILE`; the name may be a reference."""
    if (member := _member(name)) is not None:
        return member
    if name in TASKS:
        return TASKS[name]
    if name in TASK_FAMILIES and not is_reference(name):
        raise UserError(f"{name} is a family of tasks: `orgthink list {name}` lists them")
    start = name.find(":", name.find(".py:") + 4) if ".py:" in name else name.find(":")
    if start > 0 and not is_reference(name):
        return FILE_TASKS.named(name[:start])(Path(name[start + 1 :]))
    return TASKS.named(name)


def _remembered(task: Task) -> Task:
    _opened[task.name] = task
    return task
