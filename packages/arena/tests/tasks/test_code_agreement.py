"""The grader of LiveCodeBench against the one that lighteval packages, on the same answers."""

from __future__ import annotations

import importlib.util
import json
import sys
from itertools import islice
from pathlib import Path
from types import ModuleType

import pytest
from code_answers import answers
from code_rows import RIGHT, ROWS, fenced, write_rows

from orgthink.tasks import task_named

pytestmark = pytest.mark.clients

SECONDS = 3
UNDERSCORED = "a number that is printed with underscores is none here; there it is what Python reads"
EXPLAINED = {
    ("total", "open"): "`open(0)` is the input here; there it is the grader's own, which is empty",
    ("total", "underscores"): UNDERSCORED,
    ("halves", "underscores"): UNDERSCORED,
}
"""Answers on which the two differ, and why."""


CHEAT = """
import sys
frame = sys._getframe()
while frame and "all_outputs" not in frame.f_locals: frame = frame.f_back
print(frame.f_locals["all_outputs"][len(frame.f_locals["all_results"])] if frame else "no")
"""
EQUAL = (
    "class Equal:\n    __eq__ = lambda self, other: True\nclass Solution:\n    widest = lambda self, values: Equal()"
)
DIFFERENT = [
    ("total", "import sys\nprint(sum(map(int, sys.stdin.buffer.read().split()[1:])))", True),
    ("total", "if __name__ == '__main__':\n    input()\n    print(sum(map(int, input().split())))\nx = 1", True),
    ("total", f"{RIGHT['total']}\nquit()", True),
    ("total", CHEAT, False),
    ("widest", EQUAL, False),
]  # fmt: skip
"""Key of a problem, a program, and whether it is right here; there it is the other way round."""


def reference() -> ModuleType:
    """The module with lighteval's grader, without the rest of lighteval."""
    package = importlib.util.find_spec("lighteval")
    if package is None or not package.submodule_search_locations:
        pytest.skip("lighteval is not installed here")
    file = Path(package.submodule_search_locations[0]) / "tasks" / "tasks" / "lcb" / "codegen_metrics.py"
    spec = importlib.util.spec_from_file_location("codegen_metrics", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["codegen_metrics"] = module  # its processes look for it
    spec.loader.exec_module(module)
    return module


def test_agreement(tmp_path):
    theirs = reference()
    task = task_named(f"bench:livecodebench-v6:{write_rows(tmp_path / 'rows.jsonl')}?seconds={SECONDS}")
    problems = {problem.id.rpartition("/")[2]: problem for problem in islice(task.problems("test", 0), len(ROWS))}
    samples = {row["question_id"]: sample(row, theirs) for row in ROWS}
    differences, count = {}, 0
    for key, name, answer in answers():
        results = theirs.check_correctness(samples[key], theirs.extract_code(answer), timeout=SECONDS)
        right = all(result is True or result == 1 for result in results)
        count += 1
        if bool(task.grade(problems[key], answer).correct) != right:
            differences[key, name] = results
    assert count >= 200
    assert differences.keys() == EXPLAINED.keys(), differences
    assert len(differences) <= 0.015 * count


def test_the_table_of_differences(tmp_path):
    """What the page on benchmarks of programs says of both."""
    theirs = reference()
    task = task_named(f"bench:livecodebench-v6:{write_rows(tmp_path / 'rows.jsonl')}?seconds={SECONDS}")
    problems = {problem.id.rpartition("/")[2]: problem for problem in islice(task.problems("test", 0), len(ROWS))}
    samples = {row["question_id"]: sample(row, theirs) for row in ROWS}
    for key, program, right in DIFFERENT:
        results = theirs.check_correctness(samples[key], program, timeout=SECONDS)
        there = all(result is True or result == 1 for result in results)
        here = bool(task.grade(problems[key], fenced(program)).correct)
        assert (here, there) == (right, not right), (program, results)


def sample(row: dict[str, str], theirs: ModuleType) -> dict[str, str]:
    """A row as lighteval's grader wants it."""
    private = row["private_test_cases"]
    cases = json.loads(row["public_test_cases"])
    cases += json.loads(private) if private.startswith("[") else theirs.translate_private_test_cases(private)
    function = json.loads(row["metadata"]).get("func_name")
    tests = {name: [case[name[:-1]] for case in cases] for name in ("inputs", "outputs")}
    return {"input_output": json.dumps(tests | {"fn_name": function})}
