"""The base class of tasks, and what tasks share: splits, streams of problems, names of families."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, Self, runtime_checkable
from urllib.parse import quote, unquote

from orgthink.grammar.strict_json import DEPTH, is_shallow
from orgthink.record.episode import Grade, Problem
from orgthink.util.errors import UserError
from orgthink.util.tabular import read_rows

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


@dataclass(frozen=True, slots=True)
class Convention:
    """How a task is measured in publications, so that numbers can be compared."""

    samples: int
    """k: attempts at a problem; the score is avg@k."""
    temperature: float
    """Sampling temperature."""
    template: str
    """Name of the template that asks for the form of the answer."""
    problems: int | None = None
    """Number of different problems; `None`: all."""
    published: int | None = None
    """Problems of the whole set, where that is known."""


class Task:
    """Problems and their grader. A task needs `name`, `problems` and `grade`; the rest has defaults."""

    name: str
    convention: Convention | None = None
    """How publications measure the task; `None` without a convention."""
    tasks: Mapping[str, Task] = {}
    """Tasks of its problems by name, where they belong to other tasks, as in a file collected from several."""

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        """A stream of problems, determined by split and seed, possibly with repetitions; endless for training."""
        raise NotImplementedError

    def grade(self, problem: Problem, answer: str) -> Grade:
        """Grade the text of an answer: exact and total. The text is parsed, never evaluated."""
        raise NotImplementedError

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        """The solutions in an answer, in order; by default its text is one."""
        text = answer.strip()
        return [Solution(text, text)] if text else []

    def fits(self, data: Mapping[str, Any]) -> bool:
        """Whether these can be the data of its problems, in a row of a foreign file."""
        return True

    def taken(self, split: Split) -> str | None:
        """What was taken from a table of the user: one line, or `None` without a table."""
        return None


class PlainTask(Task):
    """A task from an object with a name, problems and a grader that does not derive from `Task`."""

    def __init__(self, task: Any) -> None:
        for name in ("name", "problems", "grade", "solutions", "fits", "convention", "tasks", "of_file"):
            if hasattr(task, name):
                setattr(self, name, getattr(task, name))


@runtime_checkable
class TaskFamily(Protocol):
    """Tasks of one source, by the names that it gives them: `FAMILY:MEMBER`."""

    def __call__(self, member: str) -> Task:
        """The task of a member, settings included. UserError for an unknown member."""
        ...

    def lines(self, member: str) -> Iterator[str]:
        """The lines of `orgthink list FAMILY:MEMBER`; all members for an empty name or `*`."""
        ...


def read_member(family: str, text: str) -> tuple[str, dict[str, Any]]:
    """The parts of `MEMBER?SETTING=VALUE&SETTING=VALUE`; values are JSON, or else text. UserError for anything else.

    Signs that join tasks or settings are written as in URLs: `%2B` for `+`, `%26` for `&`, `%23` for `#`.
    """
    member, _, rest = text.partition("?")
    found: dict[str, Any] = {}
    for part in rest.split("&") if rest else ():
        setting, equals, value = part.partition("=")
        if not equals or not setting or setting in found:
            raise UserError(f"{family}:{member} takes settings as SETTING=VALUE behind a ?, joined by &, each once")
        try:
            found[setting] = json.loads(unquote(value))
        except (ValueError, RecursionError):
            found[setting] = unquote(value)
    return member, found


def member_name(family: str, member: str, settings: Mapping[str, Any]) -> str:
    """The name of a member with settings, independent of their order and spelling."""

    def written(value: Any) -> str:
        return quote(value if isinstance(value, str) else json.dumps(value, separators=(",", ":")), safe='[]{}",.:')

    given = "&".join(f"{setting}={written(value)}" for setting, value in sorted(settings.items()))
    return f"{family}:{member}" + (f"?{given}" if given else "")


def endless(task: Task, seed: int) -> Iterator[Problem]:
    """The training problems of a task. UserError where the stream ends, which only an evaluation allows."""
    count = 0
    for problem in task.problems("train", seed):
        yield problem
        count += 1
    raise UserError(f"{task.name} ends after {count} train problems: training needs an endless stream from problems()")


class MissingFile(UserError):
    """A file of problems does not exist."""

    def __init__(self, file: Path) -> None:
        super().__init__(f"no file of problems at {file}")
        self.file = file


class FileTask(Task):
    """A task with the rows of files as its problems. A single file is its own split."""

    columns: tuple[str, ...]
    """Columns of the files that are read."""

    def __init__(self, file: Path | None = None) -> None:
        """Without a file it only grades."""
        self._files: Mapping[Split, Sequence[Path]] = {} if file is None else of_both(file)
        self._rows: dict[Split, list[Problem]] = {}

    def of_file(self, file: Path) -> Self:
        """The task with the problems of a file."""
        return self.of_files(of_both(file))

    def of_files(self, files: Mapping[Split, Sequence[Path]]) -> Self:
        """The task with the problems of the files of each split."""
        task = copy(self)
        task._files, task._rows = files, {}
        return task

    def read(self, row: Any, place: str) -> Problem | None:
        """The problem of a row; `None` for a row of another task. UserError that begins with `place` for a bad row."""
        raise NotImplementedError

    @property
    def rows(self) -> list[Problem]:
        """All problems of a single file."""
        return self.rows_of("test")

    def rows_of(self, split: Split) -> list[Problem]:
        """All problems of a split, read once; one that is there several times counts once. UserError with the file and,
        for a bad row, its number from 1."""
        if not self._files:
            raise UserError(f"{self.name} needs a file of problems: {self.name}:FILE")
        if split not in self._rows:
            read = (self.read(row, place) for file in self._files[split] for place, row in placed(file, self.columns))
            self._rows[split] = list({problem.id: problem for problem in read if problem is not None}.values())
        if not self._rows[split]:
            raise UserError(f"{', '.join(map(str, self._files[split]))} holds no problems of {self.name}")
        return self._rows[split]

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        """The rows of the split, without end; in a new order on each pass and for each seed."""
        rng, rows = random.Random(f"{self.name} {seed}"), self.rows_of(split)
        while True:
            yield from rng.sample(rows, len(rows))


def of_both(file: Path) -> dict[Split, Sequence[Path]]:
    """A file that is read for both splits."""
    return {"train": [file], "test": [file]}


def placed(file: Path, columns: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """The rows of a file, each with its place for messages."""
    if not file.is_file():
        raise MissingFile(file)
    for number, row in enumerate(read_rows(file, columns), 1):
        yield f"{file}, row {number}", row


def require_shallow(problem: Problem, place: str) -> Problem:
    """The problem of a row. UserError if its data nest so deep that no record of it could be read again."""
    if not is_shallow(problem.data):
        raise UserError(f"{place}: its data nest too deep: at most {DEPTH} levels")
    return problem
