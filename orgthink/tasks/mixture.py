"""Several tasks as one: `arithmetic-mini+countdown-mini-single` draws from them in turn."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from orgthink.record.episode import Grade, Problem
from orgthink.tasks.task import Collected, Convention, Solution, Split, Task, convention_of


class TaskMixture:
    """Problems of its parts in turn, in equal shares. Each problem keeps its own task."""

    def __init__(self, *parts: Task) -> None:
        """ValueError if a task is named twice."""
        self.name = "+".join(part.name for part in parts)
        """Names of its parts, joined by `+`."""
        self.parts = {part.name: part for part in parts}
        """Parts by name, in order."""
        if len(self.parts) < len(parts):
            raise ValueError(f"{self.name} names a task twice: each has the same share")
        of_files = [part.tasks for part in parts if isinstance(part, Collected)]
        self._graders = {name: task for tasks in (*of_files, self.parts) for name, task in tasks.items()}

    @property
    def convention(self) -> Convention | None:
        """That of its parts, if they agree on the samples and the temperature."""
        found = [convention_of(part) for part in self.parts.values()]
        known = [one for one in found if one is not None]
        if len(known) < len(found) or len({(one.samples, one.temperature) for one in known}) > 1:
            return None
        templates = "+".join(dict.fromkeys(one.template for one in known))
        return Convention(known[0].samples, known[0].temperature, templates)

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        """Alternates between the streams of the parts at this split and seed."""
        streams = [part.problems(split, seed) for part in self.parts.values()]
        return chain.from_iterable(zip(*streams, strict=True))

    def grade(self, problem: Problem, answer: str) -> Grade:
        """Grade by the task of the problem; KeyError if it is neither a part nor a task of a collected part."""
        return self._graders[problem.task].grade(problem, answer)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        return self._graders[problem.task].solutions(problem, answer)
