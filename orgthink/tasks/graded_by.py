"""A task with another grader."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from orgthink.record.episode import Grade, Problem
from orgthink.tasks.task import Convention, Solution, Split, Task, convention_of
from orgthink.util.errors import UserError

Grader = Callable[[Problem, str], Grade]
"""Grades the text of an answer to a problem. Exact and total: any text gets a grade without an exception."""


NEEDED: Mapping[str, tuple[str, ...]] = {
    "exact": ("answer",),
    "math": ("answer",),
    "strict": ("numbers", "target"),
}
"""What a grader here reads in the data of a problem."""


class GradedBy:
    """`TASK#GRADER`: the problems of a task with a function as their grader."""

    def __init__(self, task: Task, grader: Grader, name: str) -> None:
        self.name = f"{task.name}#{name}"
        self._task, self._grader, self._needed = task, grader, NEEDED.get(name, ())

    @property
    def convention(self) -> Convention | None:
        return convention_of(self._task)

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        """Those of the task. UserError, before any is asked, if one lacks what the grader compares with."""
        for problem in self._task.problems(split, seed):
            missing = next((name for name in self._needed if name not in problem.data), None)
            if missing is not None:
                raise UserError(f"{self.name}: {problem.id} has no {missing!r} in its data, which the grader needs")
            yield problem

    def grade(self, problem: Problem, answer: str) -> Grade:
        return self._grader(problem, answer)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        return self._task.solutions(problem, answer)


def exact(problem: Problem, answer: str) -> Grade:
    """1 if the answer is the text of `data["answer"]`, ignoring white space at the ends, else 0. Nothing is the answer
    to a problem that has none."""
    right = "answer" in problem.data and answer.strip() == str(problem.data["answer"]).strip()
    return Grade(int(right), problem.required)
