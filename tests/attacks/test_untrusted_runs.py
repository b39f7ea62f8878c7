"""Run folders and pairs of somebody else: nothing that they name is run unless it is trusted."""

from __future__ import annotations

import hashlib
import json
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from attacks.catalogue import Attack, each
from orgthink_arena.judges.judge import JudgedOutput, JudgeLimits
from orgthink_arena.tasks.bench import livecodebench
from tiny_recipes import ASYNCTHINK, named

from orgthink.cli import main
from orgthink.cli.view import Following, _html
from orgthink.evaluation.specs import OrganizationSpec
from orgthink.record.episode import SCHEMA_VERSION, Episode, Grade, Origin, Problem, Span, Trace
from orgthink.record.episode_json import dump
from orgthink.record.folder import RunFolder
from orgthink.util.settings import plain

CODE = "No code that a run folder names is run unless `--trust` is given."
PROGRAMS = "No program in an answer is run again unless `--trust` is given, and then as the task says, never a record."
LOOK = "`view`, `compare` and, without `--trust`, `measure` run no code that a run folder names."
LINE = "one line that names `--trust`, exit code 2"

EVIL = "open('ran', 'w').close()\nfrom orgthink.tasks.sudoku import SUDOKU as TASK\n"
ROWS = ["--recipe", named("ASYNCTHINK"), "--out", "rows.jsonl"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def foreign(kind: str, settings: Any, *episodes: Episode) -> Path:
    """A run folder that somebody else wrote."""
    folder = Path("run")
    folder.mkdir()
    (folder / "evil.py").write_text(EVIL)
    config = {"kind": kind, "orgthink": "0.1.0", "schema_version": SCHEMA_VERSION, "settings": settings}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "episodes.jsonl").write_bytes(b"".join(map(dump, episodes)))
    return folder


def evaluation(task: str, organization: str, settings: Any = None) -> dict[str, Any]:
    return {
        "task": task,
        "n": 1,
        "samples": 2,
        "organizations": {"a": plain(OrganizationSpec(organization, settings or {}))},
    }


@each(
    Attack("its task is a file of code", CODE, LINE, evaluation("run/evil.py:TASK", "asyncthink")),
    Attack(
        "its task is a mixture with a file of code", CODE, LINE, evaluation("sudoku+run/evil.py:TASK", "asyncthink")
    ),
    Attack(
        "the kind of an organization below its organization is a file of code", CODE, LINE,
        evaluation("countdown", "asyncthink", {"worker": {"kind": "run/evil.py:TASK"}}),
    ),
)  # fmt: skip
def test_rows_of_a_foreign_run(attack: Attack, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ASYNCTHINK.settings.rollout.organization.organization == "asyncthink"
    foreign("eval", attack.given)
    assert main(["export", "rows", "run", *ROWS]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--trust" in line and not (here / "ran").exists()
    assert main(["export", "rows", "run", "--trust", *ROWS]) == 2, "it runs, and has no episodes"
    assert (here / "ran").exists()


@each(
    *(
        Attack(f"`{' '.join(argv)}` of a run whose task is a file of code", LOOK, "exit code 0", argv)
        for argv in (["view", "run"], ["view", "run", "--transcript"], ["measure", "run"], ["compare", "run", "run"])
    )
)
def test_a_foreign_run_is_read(attack: Attack, here: Path) -> None:
    foreign("eval", evaluation("run/evil.py:TASK", "sequential"), graded_by_programs())
    assert main(attack.given) == 0
    assert not (here / "ran").exists()


@each(Attack("`view --serve` of a run whose task is a file of code", LOOK, "the page of all episodes"))
def test_a_foreign_run_is_served(attack: Attack, here: Path) -> None:
    folder = RunFolder.open(foreign("eval", evaluation("run/evil.py:TASK", "sequential"), graded_by_programs()))
    with Following(folder, 0, lambda: _html(folder, list(folder.episodes()))) as server:
        answering = threading.Thread(target=server.handle_request)
        answering.start()
        assert "livecodebench-v6/x" in httpx2.get(f"{server.url}all", trust_env=False).text
        answering.join()
    assert not (here / "ran").exists()


class Judges:
    """Runs nothing, and remembers what it was asked to run."""

    def __init__(self) -> None:
        self.asked: list[JudgeLimits] = []

    def made(self, limits: JudgeLimits) -> Any:
        @contextmanager
        def outputs(program: object, inputs: list[str]) -> Any:
            self.asked.append(limits)
            yield iter([JudgedOutput("2")] * len(inputs))

        self.outputs = outputs
        return self


PRIVATE = '[{"input": "1", "output": "2"}]'
ANSWER = "```python\nprint(2)\n```"
STRANGERS = {"seconds": 1e9, "memory_mb": 10**6}


def graded_by_programs(answer: str = ANSWER) -> Episode:
    """A record of a benchmark of programs; it says where and how long its program is to be run."""
    name = hashlib.sha256(PRIVATE.encode()).hexdigest()
    data = {"public": [["1", "2"]], "private": name, "function": None, "from": "", "to": "", **STRANGERS}
    problem = Problem("livecodebench-v6/x", "bench:livecodebench-v6", "q", data=data)
    said = f"<ANSWER>\n{ANSWER}\n</ANSWER>"
    solver = Trace("s", "solver", None, (Span(Origin.SAMPLED, said, 5, start=0.0, end=1.0),), returned=said, model="m")
    return Episode("livecodebench-v6/x|a|0", problem, "a", 1, (solver,), answer=answer, grade=Grade(1, 1))


@pytest.fixture
def judges(here: Path, monkeypatch: pytest.MonkeyPatch) -> Judges:
    row = {"question_content": "q", "starter_code": "", "public_test_cases": PRIVATE, "private_test_cases": PRIVATE,
           "metadata": "{}", "contest_date": "2025-02-01", "question_id": "x"}  # fmt: skip
    (here / "rows.jsonl").write_text(json.dumps(row) + "\n")
    judges = Judges()
    monkeypatch.setattr(livecodebench, "Judge", judges.made)
    return judges


@each(Attack("a record with a program and 10⁹ seconds for it", PROGRAMS, "the stored grade counts"))
def test_a_program_in_a_record(attack: Attack, judges: Judges, capsys: pytest.CaptureFixture[str]) -> None:
    foreign("eval", evaluation("bench:livecodebench-v6:rows.jsonl", "sequential"), graded_by_programs())
    assert main(["measure", "run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["a"]["solver_correct"]["mean"] == 1
    assert main(["view", "run", "--out", "page.html"]) == 0
    assert judges.asked == []
    assert main(["measure", "run", "--json", "--trust"]) == 0
    settings = livecodebench.SETTINGS
    limits = JudgeLimits(settings["seconds"], settings["memory_mb"])
    assert judges.asked == [limits]
