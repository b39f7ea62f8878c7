"""Several tasks as one: `arithmetic-mini+countdown-mini-single` draws from each in turn."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from orgthink.episode import Grade, Problem
from orgthink.tasks.task import Collected, Solution, Split, Task


class Mixture:
    """Problems of its parts in turn: each has an equal share, and every problem stays that of its own task."""

    def __init__(self, *parts: Task) -> None:
        """ValueError if a task is named twice."""
        self.name = "+".join(part.name for part in parts)
        """Of its parts, joined by `+`."""
        self.parts = {part.name: part for part in parts}
        """By name, in order."""
        if len(self.parts) < len(parts):
            raise ValueError(f"{self.name} names a task twice: each has the same share")
        of_files = [part.tasks for part in parts if isinstance(part, Collected)]
        self._graders = {name: task for tasks in (*of_files, self.parts) for name, task in tasks.items()}

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        """The streams of the parts at the same split and seed, a problem of each at a time."""
        streams = [part.problems(split, seed) for part in self.parts.values()]
        return chain.from_iterable(zip(*streams, strict=True))

    def grade(self, problem: Problem, answer: str) -> Grade:
        """By the task that the problem names; KeyError if it is none of the parts, nor of the tasks of a file."""
        return self._graders[problem.task].grade(problem, answer)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        return self._graders[problem.task].solutions(problem, answer)
