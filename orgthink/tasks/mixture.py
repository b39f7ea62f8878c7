"""Several tasks as one: `arithmetic-mini+countdown-mini-single` draws from each in turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from orgthink.episode import Grade, Problem
from orgthink.tasks.task import Solution, Split, Task


@dataclass(frozen=True, slots=True)
class Mixture:
    """Problems of its parts in turn: each has an equal share, and every problem stays that of its own task."""

    parts: tuple[Task, ...]
    """Different tasks."""

    def __post_init__(self) -> None:
        names = [part.name for part in self.parts]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{self.name} names {name} twice: each task of a mixture has the same share")

    @property
    def name(self) -> str:
        """Of its parts, joined by `+`."""
        return "+".join(part.name for part in self.parts)

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        """The streams of the parts at the same split and seed, a problem of each at a time."""
        return chain.from_iterable(zip(*(part.problems(split, seed) for part in self.parts), strict=True))

    def grade(self, problem: Problem, answer: str) -> Grade:
        """By the task that the problem names; KeyError if it is none of the parts."""
        return self._part(problem).grade(problem, answer)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        return self._part(problem).solutions(problem, answer)

    def _part(self, problem: Problem) -> Task:
        return {part.name: part for part in self.parts}[problem.task]
