"""Tables of the columns that people have: what is taken from them, which grader they get, and how each one grades."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from orgthink.cli.eval import Eval
from orgthink.record.episode import Grade, Problem, Status
from orgthink.runtime.agent import Result
from orgthink.tasks import TASKS, file_of, task_named, task_of
from orgthink.tasks.rows import recognise
from orgthink.tasks.vote import vote
from orgthink.tools import code_task
from orgthink.util.errors import UserError
from orgthink.util.references import absolute
from orgthink.util.registry import Untrusted, registered_only

CAPITALS = [{"question": "Capital of Italy?", "answer": "Rome"}, {"question": "Capital of Peru?", "answer": "Lima"}]
SUMS = [{"question": f"{n} + {n}?", "answer": f"Twice {n}.\n#### {2 * n}"} for n in range(5)]
LETTERS = [{"question": "Which is even?", "choices": ["3", "4", "5"], "answer": 1}]
DOUBLE = {
    "task_id": "HumanEval/900",
    "prompt": 'def double(x: int) -> int:\n    """Twice x."""\n',
    "canonical_solution": "    return 2 * x\n",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(-1) == -2\n",
    "entry_point": "double",
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def table(rows: list[dict], name: str = "rows.jsonl") -> str:
    """Writes the rows; returns the name of the file."""
    if name.endswith(".csv"):
        with open(name, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
    elif name.endswith(".parquet"):
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(rows), name)
    else:
        Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return name


def first(name: str):
    """A task, and its problem that the first row of its table is."""
    task = task_named(name)
    return task, task.rows[0]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("columns", "taken"),
    [
        (("id", "question", "answer"), ("question", "answer")),
        (("ID", "Problem", "Solution", "Answer"), ("Problem", "Answer")),
        (("prompt", "target", "solution"), ("prompt", "target")),
        (("input", "expected_answer"), ("input", "expected_answer")),
        (("problem", "level", "type", "solution"), ("problem", "solution")),
        (("task_id", "text", "code", "test_list"), ("text", "test_list")),
    ],
)
def test_the_columns_that_people_have(columns, taken):
    assert recognise(columns) == taken


@pytest.mark.parametrize(("columns", "says"), [(("q", "answer"), "question"), (("question",), "answer"), ((), "empty")])
def test_columns_that_hold_nothing_of_a_problem(columns, says):
    with pytest.raises(UserError, match=says):
        recognise(columns)


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.csv", "rows.parquet"])
def test_a_table_is_a_task_and_says_what_was_taken(name):
    task, problem = first(table(SUMS, name))
    assert task.taken("test") == '5 problems from column "question", answers from "answer", grader math'
    assert problem.text.startswith("0 + 0?") and problem.data == {"answer": "0"}
    assert task.grade(problem, "It is \\boxed{0}.").all_correct and not task.grade(problem, "\\boxed{1}").all_correct
    assert len({one.id for one in islice(task.problems("train", 3), 5)}) == 5
    assert task_of(problem) is not None and file_of(name) == Path(name)


@pytest.mark.parametrize(
    ("answers", "grader"),
    [
        (["12", "1/2", "three"], "math"),
        (["$x^2$", "\\frac12"], "math"),
        (["so \\boxed{4}", "thus \\boxed{5}"], "math"),
        (["#### 7"], "math"),
        (["Rome", "Lima", "1912"], "exact"),
        (["A", "C", "B"], "choice"),
    ],
)
def test_answers_decide_the_grader(answers, grader):
    task, _ = first(table([{"question": f"{place}?", "answer": answer} for place, answer in enumerate(answers)]))
    assert task.name == grader


def test_long_answers_ask_for_a_grader():
    rows = table([{"question": "Why?", "answer": "Because of many things. " * 9}])
    with pytest.raises(UserError, match="judge=MODEL@URL, contains or exact"):
        task_named(rows)
    assert task_named(f"{rows}#contains").name == "contains"


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([{"q": "1?", "a": "1"}], "rows.jsonl, row 1: no column with the question"),
        ([{"question": "1?", "note": "1"}], "no column with the answer (answer, target, expected_answer): the row has"),
        ([*SUMS, {"question": "?"}], "rows.jsonl, row 6: no column with the answer"),
        ([], "rows.jsonl, row 1: "),
        ([{"question": "?", "choices": ["a", "b"], "answer": "c"}], "its answer 'c' is not one of its options"),
        ([{"question": "?", "choices": ["a", "b"], "answer": 2}], "its answer '2' is not one of its options"),
    ],
)
def test_a_table_that_cannot_be_read_gets_one_line(rows, says):
    with pytest.raises(UserError) as caught:
        next(task_named(table(rows)).problems("test", 0))
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_table_and_an_unknown_grader():
    with pytest.raises(UserError, match="no file of problems at nowhere"):
        task_named("nowhere.jsonl")
    with pytest.raises(UserError, match="did you mean exact"):
        task_named(f"{table(SUMS)}#exat")


def test_a_run_remembers_where_its_table_is():
    name = table(SUMS)
    whole = str(Path(name).resolve())
    assert absolute({"task": f"{name}#exact"}) == {"task": f"{whole}#exact"}
    assert absolute(f"{name}@0/2") == f"{whole}@0/2" and absolute("countdown") == "countdown"


@pytest.mark.parametrize(
    ("grader", "answer", "right"),
    [
        ("exact", "Rome", True),
        ("exact", "I think so.\nAnswer: Rome", True),
        ("exact", "**Answer:** Rome", True),
        ("exact", "It is \\boxed{Rome}.", True),
        ("exact", "\\boxed{\\text{Rome}}", True),
        ("exact", "\\boxed{Rome, Milan}", False),
        ("exact", "Answer: Rome or Milan", False),
        ("exact", "rome", False),
        ("exact", "", False),
        ("contains", "It is ROME.", True),
        ("contains", "Jerome", False),
        ("contains", "Milan", False),
    ],
)
def test_texts(grader, answer, right):
    task, problem = first(f"{table(CAPITALS)}#{grader}")
    assert task.name == problem.task == grader
    assert task.grade(problem, answer) == Grade(int(right), 1)


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("B", True),
        ("\\boxed{B}", True),
        ("\\boxed{\\text{B}}", True),
        ("**B**", True),
        ("(B).", True),
        ("B) 4", True),
        ("4 is even.\nAnswer: B", True),
        ("Because 4 is even, the answer is (B).", True),
        ("The answer is A. No: the answer is B.", True),
        ("\\boxed{A}", False),
        ("\\boxed{A, B}", False),
        ("The answer is B or C.", False),
        ("B) 5", False),
        ("Better luck next time", False),
        ("\\boxed{4}", False),
        ("The answer is B.\n\\boxed{C}", False),
        ("", False),
    ],
)
def test_letters(answer, right):
    task, problem = first(table(LETTERS))
    assert problem.text.startswith("Which is even?\nA) 3\nB) 4\nC) 5\n\nPut the letter")
    assert task.grade(problem, answer) == Grade(int(right), 1)


def test_an_answer_names_its_option_by_number_letter_or_text():
    for answer in (1, "B", "4"):
        _, problem = first(table([{**LETTERS[0], "answer": answer}]))
        assert problem.data["answer"] == "B"
    for options in ('["3", "4", "5"]', {"text": ["3", "4", "5"], "label": ["A", "B", "C"]}):  # of CSV, and of ARC
        _, problem = first(table([{"question": "Which is even?", "choices": options, "answerKey": "B"}]))
        assert problem.data == {"options": ["3", "4", "5"], "answer": "B"}


def test_votes_compare_what_the_grader_compares():
    _, problem = first(f"{table(CAPITALS)}#exact")
    assert vote(problem, ["Milan", "so\nAnswer: Rome", "Answer: Rome"]) == "Rome"
    _, problem = first(table(LETTERS))
    assert vote(problem, ["\\boxed{A}", "(B)", "the answer is B"]) == "B"


class Local:
    """Runs programs with this Python, without a sandbox: only those of these tests."""

    async def run(self, code: str, stdin: str = "") -> Result:
        done = subprocess.run([sys.executable, "-c", code], input=stdin, capture_output=True, text=True, timeout=60)
        status = Status.OK if done.returncode == 0 else Status.ERROR
        return Result(done.stdout + done.stderr, status)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_task, "runner", lambda: Local())


FENCED = "Here:\n```python\n{}\n```\nDone."


@pytest.mark.parametrize(
    ("program", "right"),
    [
        ("def double(x: int) -> int:\n    return x + x", True),
        ("    def double(x):\n        return x + x", True),
        ("def double(x):\n    return 4", False),
        ("def double(x: int) -> int:\n    return", False),
        ("def double(x", False),
        ("import sys\nsys.exit(0)", False),
        ("import os\nos._exit(0)", False),
        ("print('passed')\nraise SystemExit(0)", False),
        ("", False),
    ],
)
def test_a_program_must_reach_the_end_of_its_tests(programs, program, right):
    task, problem = first(table([DOUBLE]))
    assert task.name == "code" and problem.text.startswith("def double")
    assert task.grade(problem, FENCED.format(program)) == Grade(int(right), 1)


def test_the_last_program_of_an_answer_counts(programs):
    task, problem = first(table([DOUBLE]))
    right, wrong = (FENCED.format(f"def double(x):\n    return {value}") for value in ("2 * x", "x"))
    assert task.grade(problem, wrong + right).all_correct and not task.grade(problem, right + wrong).all_correct
    assert not task.grade(problem, "def double(x):\n    return 2 * x").all_correct


def test_tests_of_mbpp_are_shown_and_follow_their_imports(programs):
    row = {
        "text": "Write a function that rounds a root down.",
        "code": "def root(x): ...",
        "test_list": ["assert root(9) == 3", "assert root(17) == math.isqrt(17)"],
        "test_setup_code": "import math",
    }
    task, problem = first(table([row]))
    assert task.name == "code" and "assert root(9) == 3" in problem.text
    assert task.grade(problem, FENCED.format("def root(x):\n    return math.isqrt(x)")).all_correct


def test_programs_of_strangers_are_not_run_again(programs):
    task, problem = first(table([DOUBLE]))
    with registered_only(), pytest.raises(Untrusted):
        task.grade(problem, FENCED.format("def double(x):\n    return 2 * x"))


def test_without_a_sandbox_no_program_is_asked_for(monkeypatch):
    def none():
        raise UserError("code cannot be isolated here")

    monkeypatch.setattr(code_task, "runner", none)
    with pytest.raises(UserError, match="row 1: code cannot be isolated here"):
        next(task_named(table([DOUBLE])).problems("test", 0))


def test_rows_without_tests_have_no_program_to_run(programs):
    with pytest.raises(UserError, match="it has no tests of a program"):
        next(task_named(f"{table(SUMS)}#code").problems("test", 0))


@pytest.mark.parametrize(
    ("options", "task"),
    [
        ({"grader": "exact"}, "rows.jsonl#exact"),
        ({}, "rows.jsonl"),
        ({"grader": "judge=m", "url": "http://127.0.0.1:1/v1"}, "rows.jsonl#judge=m@http://127.0.0.1:1/v1"),
        ({"grader": "judge=m@http://h/v1", "url": "http://127.0.0.1:1/v1"}, "rows.jsonl#judge=m@http://h/v1"),
    ],
)
def test_the_grader_is_part_of_the_name(options, task):
    options.setdefault("url", "http://127.0.0.1:1/v1")
    assert Eval(task=table(SUMS), organizations=("sequential",), **options).plan().task == task


@pytest.mark.parametrize("grader", ["exact", "contains", "choice"])
def test_a_task_without_an_answer_cannot_be_graded_by_it(grader):
    with pytest.raises(UserError, match="lacks data that the grader needs"):
        next(task_named(f"countdown#{grader}").problems("test", 0))
    assert TASKS[grader].grade(Problem("p", "t", "?"), "Any text.") == Grade(0, 1)
