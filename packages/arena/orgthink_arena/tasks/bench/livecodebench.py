"""LiveCodeBench: programs that must pass all tests of a problem, of which the question shows a few."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from orgthink.record.episode import Grade, Problem
from orgthink.tasks.task import Solution
from orgthink.tools import bubblewrap
from orgthink.util.errors import UserError
from orgthink.util.registry import require_trust
from orgthink_arena.judges.judge import Judge, JudgeLimits, Submission
from orgthink_arena.tasks.bench.benchmark import AnswerTemplate, Benchmark, BenchmarkRow, HubDataset
from orgthink_arena.tasks.bench.fenced import last_block
from orgthink_arena.tasks.bench.program_tests import Case, cases_in, printed, returned, same_returned

PROGRAM = AnswerTemplate(
    "program",
    "Write the whole program in Python, in a fenced block (```python) in the answer. The last such block counts.",
)
"""Asks for one program."""
COLUMNS = {
    "question": ("question_content",),
    "starter": ("starter_code", ""),
    "public": ("public_test_cases",),
    "private": ("private_test_cases",),
    "metadata": ("metadata", ""),
    "date": ("contest_date",),
    "key": ("question_id", ""),
}
SETTINGS = {"from": "", "to": "", "seconds": 6.0, "memory_mb": 1024}
"""First and last day or month of the contests, and the limits of a test."""

_VOTE_MB = 1
"""MiB of output on a public test by which a program can be known."""
_PRIVATE: dict[str, str] = {}
"""Private tests by their hash: they stay out of the record."""


def read_livecodebench(values: Mapping[str, Any]) -> BenchmarkRow | None:
    """A problem; `None` for one of a contest outside the window. Its private tests stay out of the record.

    UserError where its programs could not be run.
    """
    bubblewrap.check()
    if not within(str(values["date"]), str(values.get("from", "")), str(values.get("to", ""))):
        return None
    question, starter = str(values["question"]).strip(), str(values["starter"] or "").strip()
    private = values["private"]
    if not isinstance(private, str):
        raise ValueError("private_test_cases is no text")
    public = cases_in(_text(values["public"], "public_test_cases"))
    if not cases_in(private) and not public:  # junk is found before anything runs
        raise ValueError("it has no tests, so that any program would pass")
    function = _function(values["metadata"])
    how = (
        f"Your program must define this, and is not run otherwise:\n```python\n{starter}\n```"
        if function
        else "Your program reads from standard input and prints to standard output."
    )
    name = hashlib.sha256(private.encode(errors="surrogatepass")).hexdigest()
    _PRIVATE[name] = private
    data = {"public": [list(case) for case in public], "private": name, "function": function}
    return BenchmarkRow(f"{question}\n\n{how}", data, str(values["key"] or ""))


def within(date: str, first: str, last: str) -> bool:
    """Whether a date such as 2025-01-04T00:00:00 lies between two days or months, both included if they are given."""
    return date[: len(first)] >= first and date[: len(last)] <= last


class CodeGrader:
    """Runs the program of an answer, in a sandbox, on all tests of its problem; the first failure is the last test.

    It blocks for seconds. A vote counts what programs print on the public tests, and never looks at others.
    """

    def grade(self, problem: Problem, answer: str) -> Grade:
        """1 if the program passes all tests. ToolError if the sandbox fails, UserError without the private tests,
        Untrusted where no code of untrusted files is run."""
        program = program_in(problem, answer)
        passed = program is not None and _passes(problem, program, [*_public(problem), *_private(problem)])
        return Grade(int(passed), problem.required)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        """The program, known by its outputs on the public tests; none if it fails in one, as it then is wrong."""
        program = program_in(problem, answer)
        if program is None:
            return []
        inputs = tuple(case.input for case in _public(problem))
        outputs = _outputs(program, inputs, _limits(problem, _VOTE_MB))
        return [] if outputs is None else [Solution(outputs, f"```python\n{program.source}\n```")]


def program_in(problem: Problem, answer: str) -> Submission | None:
    """The program in the last fenced block of an answer; `None` without one. Untrusted where it must not be run."""
    source = last_block(answer)
    if source is None:
        return None
    require_trust(f"the program in an answer to {problem.id}")
    return Submission(source, problem.data["function"])


def _passes(problem: Problem, program: Submission, cases: Sequence[Case]) -> bool:
    with Judge(_limits(problem)).outputs(program, [case.input for case in cases]) as outputs:
        found = zip(cases, outputs, strict=True)
        return all(output.failure is None and _same(program, case.output, output.text) for case, output in found)


def _same(program: Submission, right: str, output: str) -> bool:
    return printed(right) == printed(output) if program.function is None else same_returned(right, output)


@lru_cache(maxsize=4096)
def _outputs(program: Submission, inputs: tuple[str, ...], limits: JudgeLimits) -> Hashable | None:
    """Identity of all outputs; `None` if a test fails."""
    identity = printed if program.function is None else returned
    with Judge(limits).outputs(program, inputs) as outputs:
        found = list(outputs)
    try:
        return None if found and found[-1].failure else tuple(identity(output.text) for output in found)
    except ValueError:
        return None


def _limits(problem: Problem, output_mb: int = JudgeLimits().output_mb) -> JudgeLimits:
    return JudgeLimits(problem.data["seconds"], problem.data["memory_mb"], output_mb)


def _public(problem: Problem) -> list[Case]:
    return [Case(*case) for case in problem.data["public"]]


def _private(problem: Problem) -> list[Case]:
    return _cases(problem.data["private"])


@lru_cache(maxsize=2)
def _cases(name: str) -> list[Case]:
    """They may be large, and all attempts at a problem need them. UserError if the rows were not read."""
    if name not in _PRIVATE:
        raise UserError("the private tests of this problem are not loaded: read its rows first, from the same file")
    return cases_in(_PRIVATE[name])


def _text(value: Any, column: str) -> str:
    """A text, or the JSON of what some copies of the data set hold instead."""
    if not isinstance(value, str | list):
        raise ValueError(f"{column} is no text")
    return value if isinstance(value, str) else json.dumps(value)


def _function(metadata: Any) -> str | None:
    """The function that tests call, by the metadata of a row; `None`: its programs read from standard input."""
    try:
        values = json.loads(metadata) if isinstance(metadata, str) else metadata or {}
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict) or not isinstance(name := values.get("func_name") or "", str):
        raise ValueError("its metadata is no object with a func_name")
    if name and not name.isidentifier():
        raise ValueError(f"func_name is no name: {name!r}")
    return name or None


def _livecodebench(version: str, rows: int) -> Benchmark:
    """The problems that a release added to the one before."""
    files = (f"{version}/*", f"*test{version[1:]}.jsonl")
    owners = ("lighteval", "livecodebench")
    return Benchmark(
        name=f"livecodebench-{version}",
        datasets=tuple(HubDataset(f"{owner}/code_generation_lite", "test", files=files) for owner in owners),
        columns=COLUMNS,
        read=read_livecodebench,
        template=PROGRAM,
        grader=CodeGrader(),
        rows=rows,
        temperature=0.2,
        settings=SETTINGS,
    )


LIVECODEBENCH_V5 = _livecodebench("v5", rows=167)
"""Contests of September 2024 to January 2025."""
LIVECODEBENCH_V6 = _livecodebench("v6", rows=175)
"""Contests of January to April 2025."""
