"""Tasks: problems and exact graders, by name."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from orgthink.record.episode import Problem
from orgthink.tasks.combined import GradedBy, Grader, Part, TaskMixture, part_of
from orgthink.tasks.task import PlainTask, Solution, Split, Task, TaskFamily
from orgthink.util.errors import UserError, pick, user_input
from orgthink.util.references import is_reference, references
from orgthink.util.registry import Registry, made

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
        "sudoku": "orgthink.tasks.sudoku:SUDOKU",
        "math": "orgthink.tasks.math:MATH",
        "verl": "orgthink.tasks.verl_data:VerlData",
        "parts": "orgthink.tasks.parts:PARTS",
        "exact": "orgthink.tasks.combined:exact",
        "strict": "orgthink.tasks.countdown:strict",
    },
    "an object or a class with name, problems and grade, a function from a file to a task, or a grader",
    _entry,
)
"""Everything that a task's name is made of.

NAME            a task: it grades the problems that name it
NAME:FILE       the task with the rows of a file as problems: `task.of_file(path)`, or a function from a path to a task
FAMILY:MEMBER   a task of a family, such as `gym:NAME`: the family is called with the member's name
TASK#GRADER     a task with another grader: a function of a problem and an answer, or a task
"""


def is_task(name: str) -> bool:
    """Whether an installed task has this name."""
    return name in TASKS and not is_reference(name) and hasattr(TASKS[name], "grade")


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
    if any(references(problem.task)):  # the record may come from elsewhere, and a reference would be executed
        return None
    if is_task(problem.task):
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
        found = pick("grader", name, TASKS)
        grade = getattr(found, "grade", found)
        if not callable(grade) or isinstance(grade, type | TaskFamily):
            raise UserError(f"{name} is not a grader: it must be a function of a problem and an answer, or a task")
        return grade
    except UserError as error:
        if ":" not in problems:
            raise
        raise UserError(f"{error}; what stands behind # is a grader, unless a file has this name") from error


def _whole(name: str) -> Task:
    *others, last = _names(name)
    parts = [_remembered(_member(other) or _task(other)) for other in others]
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
    found = TASKS[family] if colon and family in TASKS and not is_reference(family) else None
    return found if isinstance(found, TaskFamily) else None


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
    start = name.find(":", name.find(".py:") + 4) if ".py:" in name else name.find(":")
    if name in TASKS or start <= 0 or is_reference(name):
        return _task(name)
    found, file = TASKS.named(name[:start]), Path(name[start + 1 :])
    make = getattr(found, "of_file", found)
    if not callable(make):
        raise UserError(f"the task {name[:start]} takes no file")
    return _task_made(name, make(file))


def _task(name: str) -> Task:
    """The task of a name without a file; UserError for a name of something else."""
    return _task_made(name, TASKS.named(name))


def _task_made(name: str, found: Any) -> Task:
    if isinstance(found, TaskFamily):
        raise UserError(f"{name} is a family of tasks: `orgthink list {name}` lists them")
    if isinstance(found, type) or not hasattr(found, "grade"):
        raise UserError(f"{name} is not a task: it must be {TASKS.form}")
    return found


def _remembered(task: Task) -> Task:
    _opened[task.name] = task
    return task
