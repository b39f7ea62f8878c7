"""Training problems, of which a training never has enough."""

from __future__ import annotations

from collections.abc import Iterator

from orgthink.record.episode import Problem
from orgthink.tasks.task import Task
from orgthink.util.errors import UserError


def endless(task: Task, seed: int) -> Iterator[Problem]:
    """The training problems of a task. UserError where they end, which an evaluation allows."""
    count = 0
    for problem in task.problems("train", seed):
        yield problem
        count += 1
    raise UserError(
        f"{task.name} ends after {count} train problems: a training needs problems() to go on without an end"
    )
