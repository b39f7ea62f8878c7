"""A named benchmark as a task."""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from orgthink.record.episode import Grade, Problem
from orgthink.tasks.task import Convention, Solution, Split, Task, require_shallow
from orgthink.util.errors import UserError
from orgthink_arena.tasks.bench.benchmark import Benchmark, BenchmarkRow
from orgthink_arena.tasks.bench.rows import renamed, rows_of


class BenchmarkTask(Task):
    """`bench:NAME`. Grading needs no rows, because a problem holds its answer."""

    def __init__(self, benchmark: Benchmark, name: str, file: Path | None = None) -> None:
        """`name` is that of the task, `file` a file or folder with the rows in place of the cache."""
        self.benchmark = benchmark
        self.name = name
        self._file = file

    @property
    def convention(self) -> Convention:
        how = self.benchmark
        return Convention(how.k, how.temperature, how.template.name, how.subset, how.rows)

    @cached_property
    def rows(self) -> list[Problem]:
        """All problems, and what part of the benchmark each is. UserError without rows, or for a bad one."""
        return [problem for problem, _ in self._read]

    @cached_property
    def _read(self) -> list[tuple[Problem, str]]:
        """Problems that differ, with their strata."""
        found: dict[str, tuple[Problem, str]] = {}
        for place, values in rows_of(self.benchmark, self._file):
            try:
                row = self.benchmark.read({**self.benchmark.settings, **renamed(values, self.benchmark.columns)})
            except ValueError as error:
                raise UserError(f"{place}: {error}") from None
            if row is not None:
                problem = require_shallow(self.problem(row), place)
                found.setdefault(problem.id, (problem, row.stratum))
        if not found:
            raise UserError(f"{self._file or self.name} holds no problems of {self.benchmark.name}")
        return list(found.values())

    def problem(self, row: BenchmarkRow) -> Problem:
        template = self.benchmark.template
        key = row.key or hashlib.sha256(row.question.encode("utf-8", "replace")).hexdigest()[:12]
        return Problem(
            id=f"{self.benchmark.name}/{key}",
            task=self.name,
            text="\n\n".join(filter(None, (row.question, template.instruction, template.form))),
            instruction=template.instruction,
            data={**self.benchmark.settings, **row.data},
            answer_form=template.form,
        )

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        """The rows for both splits, repeated; in a new order on each pass and for each seed. Every first n of a pass
        hold each stratum in its share."""
        rng = random.Random(f"{self.name} {seed}")
        while True:
            yield from stratified(self._read, rng)

    def grade(self, problem: Problem, answer: str) -> Grade:
        return self.benchmark.grader.grade(self._with_own_settings(problem), answer)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        return self.benchmark.grader.solutions(self._with_own_settings(problem), answer)

    def _with_own_settings(self, problem: Problem) -> Problem:
        """A problem may come from an untrusted record, so limits of its programs come from the task."""
        return replace(problem, data={**problem.data, **self.benchmark.settings})


def stratified(rows: Sequence[tuple[Problem, str]], rng: random.Random) -> list[Problem]:
    """The problems in a random order in which every first n have n times its share of each stratum, within one."""
    strata: defaultdict[str, list[Problem]] = defaultdict(list)
    for problem, stratum in rng.sample(rows, len(rows)):
        strata[stratum].append(problem)
    places = [
        ((i + rng.random()) / len(problems), problem.id, problem)
        for problems in strata.values()
        for i, problem in enumerate(problems)
    ]
    return [problem for *_, problem in sorted(places, key=lambda place: place[:2])]
