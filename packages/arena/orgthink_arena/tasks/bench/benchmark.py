"""What a named benchmark is, as data: where its rows are published, what they mean, how it asks and how it grades."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from orgthink.record.episode import Grade, Problem
from orgthink.tasks.task import Solution

Columns = Mapping[str, tuple[str, ...]]
"""What a reader calls a value → what public files call its column. The first that a file has is taken; capitals do not
matter. A value whose names end with an empty one may be missing."""


@dataclass(frozen=True, slots=True)
class HubDataset:
    """A data set on the Hugging Face Hub that holds the rows of a benchmark."""

    id: str
    """`owner/name`."""
    split: str = "test"
    """Its split with the problems."""
    revision: str = "main"
    """Branch, tag or commit."""
    files: tuple[str, ...] = ()
    """Patterns of the paths of its files, such as `*gpqa_diamond*`; without any, the split is a word of the path."""
    span: tuple[int, int] | None = None
    """Its first row that counts, and the one after the last; a file with fewer rows counts whole. `None`: all count."""


@dataclass(frozen=True, slots=True)
class AnswerTemplate:
    """What stands below a question: the form in which it wants its answer."""

    name: str
    """What tables call it."""
    form: str
    """One paragraph: how the answer is written."""
    instruction: str = ""
    """Rules of the task that its rows do not state; empty without any."""


@dataclass(frozen=True, slots=True)
class BenchmarkRow:
    """A row of a benchmark, read."""

    question: str
    """The question with everything that belongs to it, such as its options."""
    data: dict[str, Any]
    """What the grader needs; JSON values."""
    key: str = ""
    """Name of the row in the data set, if it has one that stays; without it a hash of the question is its name."""
    stratum: str = ""
    """Its part of the benchmark, such as a category: every first n problems hold each part in its share."""


class AnswerGrader(Protocol):
    """Grades answers to the problems of a benchmark. Exact and total: any text gets a grade without an exception."""

    def grade(self, problem: Problem, answer: str) -> Grade: ...

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        """What a vote counts: equal identities are one solution."""
        ...


Reader = Callable[[Mapping[str, Any]], BenchmarkRow | None]
"""Reads a row, whose values have the names of the reader, and the settings. `None`: a row of something else.
ValueError that says what is wrong with a bad one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Benchmark:
    """A named benchmark."""

    name: str
    """Begins the ids of its problems."""
    datasets: tuple[HubDataset, ...]
    """Who publishes its rows. The first that lies in the cache is read."""
    columns: Columns
    """What the values of the reader are called in public files."""
    read: Reader
    """Makes a row of a problem."""
    template: AnswerTemplate
    """How it asks for its answers."""
    grader: AnswerGrader
    """Grades them."""
    rows: int
    """Problems of the published set."""
    k: int = 1
    """Attempts at a problem by convention: its score is avg@k."""
    temperature: float = 1.0
    """Of the sampling, by convention."""
    subset: int | None = None
    """Problems by convention; `None`: all of them."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What a grader of a kind of its own needs of every problem, such as seconds a test; JSON values, added to the data
    of each problem."""
