"""A task with another grader."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from orgthink.episode import Grade, Problem
from orgthink.tasks.task import Convention, Solution, Split, Task, convention_of

Grader = Callable[[Problem, str], Grade]
"""Grades the text of an answer to a problem. Exact and total: any text gets a grade without an exception."""


class GradedBy:
    """`TASK#GRADER`: the problems of a task with a function as their grader."""

    def __init__(self, task: Task, grader: Grader, name: str) -> None:
        self.name = f"{task.name}#{name}"
        self._task, self._grader = task, grader

    @property
    def convention(self) -> Convention | None:
        return convention_of(self._task)

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        return self._task.problems(split, seed)

    def grade(self, problem: Problem, answer: str) -> Grade:
        return self._grader(problem, answer)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        return self._task.solutions(problem, answer)


def exact(problem: Problem, answer: str) -> Grade:
    """1 if the answer is the text of `data["answer"]`, ignoring white space at the ends, else 0."""
    return Grade(int(answer.strip() == str(problem.data.get("answer", "")).strip()), problem.required)
