"""What a task is: problems, an exact grader, and the reading of an answer as a list of solutions."""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from orgthink.episode import Grade, Problem

Split = Literal["train", "test"]
"""`test` problems are held out: nothing trained on `train` has seen their targets."""


HELD_OUT = 5
"""One problem in so many is held out from training."""


def share(name: str, n: int) -> int:
    """Which of n equal shares a name falls into, from 0: by a hash that is the same everywhere."""
    return zlib.crc32(name.encode()) % n


def in_split(name: str, split: Split) -> bool:
    """Whether what has this name, such as the id of a problem, is in a split: a fifth is held out for `test`."""
    return (share(name, HELD_OUT) == 0) == (split == "test")


@dataclass(frozen=True, slots=True)
class Solution:
    """One solution that an answer offers, right or wrong."""

    identity: Hashable
    """Equal for two spellings of one solution; what a vote counts."""
    text: str
    """As it was written, trimmed."""


class Task(Protocol):
    """Problems and how they are graded. Graders are exact and total: any text gets a grade, none raises."""

    name: str

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        """An endless stream of problems, possibly with repetitions; the same for the same split and seed."""
        ...

    def grade(self, problem: Problem, answer: str) -> Grade:
        """Grade the text of an answer. The text is data: parsed, never evaluated."""
        ...

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        """The solutions that an answer offers, in order: one for an ordinary question."""
        ...


@runtime_checkable
class Collected(Protocol):
    """A task whose problems are of other tasks, as in a file that was collected from several."""

    tasks: Mapping[str, Task]
    """Those that its problems may be of, by name."""
