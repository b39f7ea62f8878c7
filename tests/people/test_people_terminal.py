"""People at a real terminal: what they see, what their lines mean, and what happens where there is none."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path
from unicodedata import category

import pytest

import orgthink
from orgthink.cli import main
from orgthink.record.episode import Grade
from orgthink.record.folder import RunFolder

ROOT = Path(orgthink.__file__).parent.parent
PATIENCE = 60.0
"""Seconds after which a silent program has failed."""

SCRIPTED = """
from orgthink.engines.scripted import ScriptedEngine, Turn

class Engine(ScriptedEngine):
    async def aclose(self):
        pass  # not all of it is asked for

async def open(rest, *, threaded=True):
    return Engine([Turn(text, when, seconds=0) for text, when in (
        ("<FORK-1> is \\x1b[2J31 prime? </FORK-1> <JOIN-1>", "main process"),
        ("<ANSWER> yes </ANSWER>", "it is </JOIN-1>"),
        ("<ANSWER> nobody knows </ANSWER>", "<JOIN-1>  </JOIN-1>"),
        ("<RETURN> it is </RETURN>", "Subtask: is 37 prime?"),
        ("<ANSWER> denied </ANSWER>", "(not done: denied: not now)"),
        ("<ANSWER> of lines </ANSWER>", "one\\ntwo </JOIN-1>"),
    )])
"""


class AtTerminal:
    """A command whose terminal is a pair of ours."""

    def __init__(self, *words: str, folder: Path) -> None:
        self._ours, theirs = pty.openpty()
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "400"}
        command = [sys.executable, "-m", "orgthink", *words]
        everything = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
        self.process = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True, **everything)
        os.close(theirs)
        self.text = ""
        self._read = 0

    def until(self, text: str) -> str:
        """Wait for a text; what was printed up to it since the last one."""
        limit = time.monotonic() + PATIENCE
        while (at := self.text.find(text, self._read)) < 0:
            assert self._more(limit), f"never printed: {text!r} in\n{self.text}"
        found, self._read = self.text[self._read : at + len(text)], at + len(text)
        return found

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def end(self) -> int:
        limit = time.monotonic() + PATIENCE
        while self._more(limit):
            pass
        os.close(self._ours)
        return self.process.wait(PATIENCE)

    def _more(self, limit: float) -> bool:
        if not select.select([self._ours], [], [], max(0.0, limit - time.monotonic()))[0]:
            return False
        try:
            found = os.read(self._ours, 1 << 16)
        except OSError:  # the program has ended
            return False
        self.text += found.decode(errors="replace").replace("\r\n", "\n")
        return bool(found)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "scripted.py").write_text(SCRIPTED)
    return tmp_path


MODEL = ("run", "--model", "scripted.py:open", "--prompts", "paper", "main question")
WORKER = (*MODEL, "--roles", "worker=person:ann")


def test_a_person_answers_at_the_terminal(folder: Path) -> None:
    program = AtTerminal(*WORKER, folder=folder)
    shown = program.until("[1]> ")
    assert "is \\u001b[2J31 prime?" in shown, "what a model wrote is shown, never obeyed"
    assert [one for one in program.text if category(one) in ("Cc", "Cf") and one not in "\n\t"] == []
    program.type("\n")
    program.until("[1]> ")  # an empty line is no answer
    program.type("it is\n")
    assert program.end() == 0
    assert "answer:\nyes" in program.text


@pytest.mark.thorough
def test_a_person_organizes(folder: Path) -> None:
    program = AtTerminal(*MODEL, "--roles", "organizer=person:", folder=folder)
    program.until("[1]> ")
    program.type("<FORK-1> is 37 prime? </FORK-1>\n")
    program.until("[1]> ")
    program.type("<JOIN-1>\n")
    assert "it is </JOIN-1>" in program.until("[2]> ")
    program.type("<ANSWER> 37 </ANSWER>\n")
    assert program.end() == 0 and "answer:\n37" in program.text


@pytest.mark.thorough
def test_an_evaluation_of_people_is_a_run_as_any_other(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "rows.jsonl").write_text('{"problem": "2 + 2?", "answer": "4"}\n')
    words = ("--organizations", "sequential", "--task", "math:rows.jsonl", "--n", "1", "--out", "run")
    program = AtTerminal("eval", "--model", "person:", *words, folder=folder)
    assert "│ Problem: 2 + 2?" in program.until("[1]> ")
    program.type("4\n")
    assert program.end() == 0
    (episode,) = RunFolder.open(folder / "run").episodes()
    assert (episode.root.person, episode.grade) == ("person", Grade(1, 1))
    for command in ("measure", "view"):
        assert main([command, str(folder / "run")]) == 0, capsys.readouterr().err
    assert "person" in (folder / "run" / "view.html").read_text()


@pytest.mark.thorough
def test_ctrl_c_ends_a_question(folder: Path) -> None:
    program = AtTerminal(*WORKER, folder=folder)
    program.until("[1]> ")
    program.process.send_signal(2)
    assert program.end() == 130


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--model", "person:", "--organization", "sequential", "2 + 2?"),
        (*WORKER,),
        ("eval", "--model", "person:", "--organizations", "sequential", "--task", "math:rows.jsonl", "--n", "1"),
    ],
    ids=["model", "role", "evaluation"],
)
def test_without_a_terminal_one_line_says_so(
    folder: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    (folder / "rows.jsonl").write_text('{"problem": "2 + 2?", "answer": "4"}\n')
    assert main(list(words)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(r"a person answers at the terminal, and standard input is not one: use a terminal", line)
    assert not list(folder.glob("runs/*")), "nothing was begun"
