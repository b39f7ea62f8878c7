"""LiveCodeBench, from rows in its public schema to the table of an evaluation."""

from __future__ import annotations

import asyncio
import json
import re
import time
from itertools import islice
from pathlib import Path

import pytest
from code_rows import PUBLIC_ONLY, RIGHT, ROWS, WRONG, fenced, packed, row, write_rows
from orgthink_arena.tasks.bench import livecodebench
from orgthink_arena.tasks.bench.program_tests import cases_in
from registered import register
from rule_engine import RuleEngine
from terse import STYLE

import orgthink.engines
from orgthink.cli import main
from orgthink.engines import EngineSpec
from orgthink.organizations.prompts import STYLES
from orgthink.record.episode import Episode, Problem
from orgthink.record.folder import RunFolder
from orgthink.tasks import task_named
from orgthink.tasks.task import Task
from orgthink.tasks.vote import prepared, vote
from orgthink.tools import bubblewrap
from orgthink.util.errors import UserError

KEYS = {row["question_content"]: row["question_id"] for row in ROWS}


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "rows.jsonl")


def problems(task: Task) -> dict[str, Problem]:
    """The problems of the file by their keys."""
    return {problem.id.rpartition("/")[2]: problem for problem in islice(task.problems("test", 0), len(ROWS))}


def key_of(text: str) -> str:
    return next(key for question, key in KEYS.items() if question in text)


def evaluated(rule, monkeypatch, *options: str) -> list[Episode]:
    """The episodes of `orgthink eval` with a model that follows a rule."""
    register(monkeypatch, STYLES, terse=STYLE)
    engine = RuleEngine(rule)

    async def open_engine(spec: EngineSpec) -> RuleEngine:
        return engine

    monkeypatch.setattr(orgthink.engines, "open_engine", open_engine)
    made_for = Path("model")
    made_for.mkdir()
    (made_for / "orgthink.json").write_text("{}")
    arguments = ["eval", "--prompts", "terse", "--model", str(made_for), "--n", "5", "--out", "run", *options]
    assert main(arguments) == 0
    return list(RunFolder.open(Path("run")).episodes())


def test_an_evaluation(rows, tmp_path, monkeypatch):
    """One answer is right, one passes the public tests only, one is wrong, one has no fence, and one is none at all."""
    monkeypatch.chdir(tmp_path)
    says = {
        "total": f"<ANSWER>{fenced(RIGHT['total'])}</ANSWER>",
        "minmax": f"<ANSWER>{fenced(WRONG['minmax'])}{fenced(RIGHT['minmax'])}</ANSWER>",
        "widest": f"<ANSWER>{fenced(PUBLIC_ONLY['widest'])}</ANSWER>",
        "grid": f"<ANSWER>{RIGHT['grid']}</ANSWER>",
        "halves": "I do not know.",
    }
    task = f"bench:livecodebench-v6:{rows}"
    episodes = evaluated(lambda text: says[key_of(text)], monkeypatch, "--task", task, "--organizations", "sequential")
    grades = {episode.problem.id.rpartition("/")[2]: episode.grade.correct for episode in episodes}
    assert grades == {"total": 1, "minmax": 1, "widest": 0, "grid": 0, "halves": 0}
    record = Path("run/episodes.jsonl").read_text()
    assert "contest" not in record and json.loads(ROWS[1]["private_test_cases"])[1]["output"] not in record
    before = record
    assert main(["eval", "--resume", "run"]) == 0
    assert Path("run/episodes.jsonl").read_text() == before, "nothing is done twice"


def test_a_vote_over_programs(rows, tmp_path, monkeypatch):
    """Three programs that differ in their text print the same on the public tests, and outvote two that agree in text;
    a program that crashes has no vote."""
    monkeypatch.chdir(tmp_path)
    said = iter(
        [
            fenced(WRONG["total"]),
            fenced("1 / 0"),
            fenced(WRONG["total"]),
            fenced(RIGHT["total"]),
            fenced(f"{RIGHT['total']}  # again"),
            fenced("input()\nprint(float(sum(map(int, input().split()))))"),
        ]
    )
    (episode,) = evaluated(
        lambda text: f"<ANSWER>{next(said)}</ANSWER>",
        monkeypatch,
        *("--task", f"bench:livecodebench-v6:{rows}?to=2025-01", "--organizations", "majority-vote"),
        *("--set", "samples=6", "--temperature", "1", "--capacity", "1"),
    )
    assert episode.grade.correct == 1
    assert episode.answer == fenced(RIGHT["total"]).strip().removeprefix("Here it is:\n")


def test_a_vote_does_not_look_at_private_tests(rows, monkeypatch):
    asked = problems(task_named(f"bench:livecodebench-v6:{rows}"))
    monkeypatch.setattr(livecodebench, "_private", lambda problem: pytest.fail("it looks at private tests"))
    for key, problem in asked.items():
        good, bad = fenced(PUBLIC_ONLY[key]), fenced(WRONG[key])
        assert vote(problem, [bad, good, fenced(RIGHT[key])]) == good.strip().removeprefix("Here it is:\n")
    assert vote(problem, ["no program", ""]) is None


async def test_a_vote_does_not_hold_up_the_event_loop(rows):
    (problem, *_) = problems(task_named(f"bench:livecodebench-v6:{rows}")).values()
    slow = fenced("import time\ntime.sleep(1)\nprint(1)")
    turns = 0

    async def ticks() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.01)
            turns += 1

    ticking = asyncio.create_task(ticks())
    assert await prepared(problem, slow) == slow
    ticking.cancel()
    assert turns >= 5
    start = time.monotonic()
    vote(problem, [slow])
    assert time.monotonic() - start < 0.5, "it is known by now"


def test_every_fixture_is_graded_as_it_should_be(rows):
    task = task_named(f"bench:livecodebench-v6:{rows}")
    for key, problem in problems(task).items():
        grades = [task.grade(problem, fenced(program[key])).correct for program in (RIGHT, PUBLIC_ONLY, WRONG)]
        assert grades == [1, 0, 0], key
        assert task.grade(problem, RIGHT[key]).correct == task.grade(problem, "").correct == 0


def test_what_a_question_says(rows):
    asked = problems(task_named(f"bench:livecodebench-v5:{rows}"))
    assert "standard input" in asked["total"].text and "def minmax(self" in asked["minmax"].text
    assert all(problem.text.endswith("The last such block counts.") for problem in asked.values())
    assert asked["total"].data["public"] == [["3\n1 2 3\n", "6\n"], ["1\n-5\n", "-5\n"]]


def test_windows_and_other_settings(rows):
    task = task_named(f"bench:livecodebench-v6:{rows}?from=2025-02&to=2025-03-01&seconds=2.5")
    assert {problem.id for problem in task.rows} == {"livecodebench-v6/halves", "livecodebench-v6/grid"}
    assert task.rows[0].data["seconds"] == 2.5
    for settings, message in (
        ("form=2025", "did you mean from"),
        ("seconds=soon", "must be a number"),
        ("from=2030", "holds no problems"),
    ):
        with pytest.raises(UserError, match=message):
            next(task_named(f"bench:livecodebench-v6:{rows}?{settings}").problems("test", 0))


def test_plain_and_packed_tests_are_the_same():
    tests = [("1\n", "2\n"), ("é", "")]
    assert cases_in(packed(tests, "stdin")) == cases_in(json.dumps([{"input": a, "output": b} for a, b in tests]))


BAD = row("bad", "?", [("1", "1")], [("1", "1")], date="2025-01-01")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"public_test_cases": "no"}, "row 1: the tests are neither JSON nor packed"),
        ({"public_test_cases": "[1]"}, "row 1: a test has no input and output"),
        ({"private_test_cases": 7}, "row 1: private_test_cases is no text"),
        ({"private_test_cases": "no"}, "row 1: the tests are neither JSON nor packed"),
        ({"private_test_cases": "[1]"}, "row 1: a test has no input and output"),
        ({"public_test_cases": "[]", "private_test_cases": "[]"}, "row 1: it has no tests"),
        ({"public_test_cases": "[]", "private_test_cases": packed([], "stdin")}, "row 1: it has no tests"),
        ({"metadata": "[]"}, "row 1: its metadata is no object"),
        ({"metadata": '{"func_name": "a b"}'}, "row 1: func_name is no name"),
        ({"contest_date": None}, "row 1: it has no date"),
    ],
)
def test_bad_rows(tmp_path, change, message):
    file = write_rows(tmp_path / "bad.jsonl", [{**BAD, **change}])
    with pytest.raises(UserError, match=re.escape(message)):
        next(task_named(f"bench:livecodebench-v6:{file}").problems("test", 0))


def test_without_bubblewrap_one_line(rows, tmp_path, monkeypatch, capsys):
    """Before any model is asked."""
    bubblewrap.check.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    arguments = ["eval", "--task", f"bench:livecodebench-v6:{rows}", "--url", "http://127.0.0.1:9/v1", "--model", "m"]
    assert main([*arguments, "--organizations", "sequential", "--out", str(tmp_path / "run")]) == 2
    bubblewrap.check.cache_clear()
    message = capsys.readouterr().err.strip()
    assert "apt-get install bubblewrap" in message and "\n" not in message
