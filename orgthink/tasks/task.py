"""The protocol of tasks: problems, an exact grader, and the solutions in an answer."""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from orgthink.record.episode import Grade, Problem

Split = Literal["train", "test"]
"""`test` problems are held out: their targets do not occur in `train`."""

HELD_OUT = 5
"""One of so many problems is held out from training."""


def share(name: str, n: int) -> int:
    """The share of a name among n equal shares, from 0, by a hash that is the same on every machine."""
    return zlib.crc32(name.encode()) % n


def in_split(name: str, split: Split) -> bool:
    """Whether a name, such as the id of a problem, belongs to a split: a fifth is held out for `test`."""
    return (share(name, HELD_OUT) == 0) == (split == "test")


@dataclass(frozen=True, slots=True)
class Solution:
    """One solution in an answer, right or wrong."""

    identity: Hashable
    """Equal for two spellings of one solution; votes count it."""
    text: str
    """As it was written, trimmed."""
    unit: str = ""
    """Of its value, in one spelling. Two units are two votes; one without a unit counts for the more frequent."""


class Task(Protocol):
    """Problems and their grader, which is exact and total: any text gets a grade without an exception."""

    name: str

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        """An endless stream of problems, possibly with repetitions, determined by split and seed."""
        ...

    def grade(self, problem: Problem, answer: str) -> Grade:
        """Grade the text of an answer. The text is parsed, never evaluated."""
        ...

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        """The solutions in an answer, in order: one for an ordinary question."""
        ...


class PlainTask:
    """A task with only a name, problems and a grader: an answer is one solution."""

    def __init__(self, task: Any) -> None:
        self.name: str = task.name
        self.problems, self.grade = task.problems, task.grade
        self.task = task

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        text = answer.strip()
        return [Solution(text, text)] if text else []


@runtime_checkable
class TaskFamily(Protocol):
    """Tasks of one source, by the names that it gives them: `FAMILY:MEMBER`."""

    def __call__(self, member: str) -> Task:
        """The task of a member, settings included. UserError if there is none."""
        ...

    def lines(self, member: str) -> Iterator[str]:
        """What `orgthink list FAMILY:MEMBER` prints; of an empty name or `*` all members."""
        ...


@runtime_checkable
class Collected(Protocol):
    """A task with problems of other tasks, such as a file that was collected from several."""

    tasks: Mapping[str, Task]
    """The tasks of its problems, by name."""


@runtime_checkable
class Checked(Protocol):
    """A task that knows its data again, in a row of somebody else."""

    def fits(self, data: Mapping[str, Any]) -> bool:
        """Whether these can be the data of its problems: the grader is total and exact with them."""
        ...


@dataclass(frozen=True, slots=True)
class Convention:
    """How others measure a task, so that numbers can be compared."""

    samples: int
    """k: attempts at a problem; the score is avg@k."""
    temperature: float
    """Of the sampling."""
    template: str
    """What asks for the form of the answer, by its name."""
    problems: int | None = None
    """How many different problems; `None`: all."""
    published: int | None = None
    """Problems of the whole set, where that is known."""


@runtime_checkable
class Conventional(Protocol):
    """A task that others measure, too."""

    @property
    def convention(self) -> Convention | None:
        """How they do; `None` where its parts differ."""
        ...


def convention_of(task: Task) -> Convention | None:
    """How others measure a task; `None` if there is no such convention."""
    return task.convention if isinstance(task, Conventional) else None
