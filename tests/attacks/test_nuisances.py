"""Small ways to waste the time of a user: messages that do not say what to do, and answers of very many lines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from attacks.catalogue import Attack, each
from attacks.deadline import within

from orgthink.cli import _unframed
from orgthink.record.folder import RunFolder
from orgthink.tasks import sudoku
from orgthink.util.errors import UserError

LINEAR = "The grader of sudokus reads answers of a bounded number of lines."


@each(Attack("an answer of a million short lines", LINEAR, "it is wrong", "1 2\n" * 1_000_000))
def test_an_answer_of_many_lines(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(sudoku, "_row", read.append)
    assert within(60, lambda: sudoku.read(attack.given)) is None and len(read) <= 2 * sudoku.MOST_LINES


def test_a_damaged_line_says_how_to_go_on(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "eval", {})
    for name, read in (("episodes.jsonl", folder.episodes), ("metrics.jsonl", folder.metrics)):
        (folder.path / name).write_text("{damaged}\n")
        with pytest.raises(UserError, match=rf"{name}, line 1: .*; to go on without it, delete this line"):
            list(read())


def test_an_error_of_an_option_has_no_colours_of_a_terminal() -> None:
    frame = "\x1b[31m╭─\x1b[0m\x1b[31m Parsing error \x1b[0m\x1b[31m───────╮\x1b[0m\n"
    frame += "\x1b[31m│\x1b[0m \x1b[mUnrecognized options: \x1b[1m--bogus 3\x1b[0m \x1b[31m│\x1b[0m\n"
    frame += "\x1b[31m│\x1b[0m ────────── \x1b[31m│\x1b[0m\n\x1b[31m│\x1b[0m For full helptext, run \x1b[31m│\x1b[0m\n"
    assert _unframed(frame) == "Unrecognized options: --bogus 3; see --help"


def test_an_error_of_an_option_on_a_terminal() -> None:
    ours, terminal = os.openpty()
    code = "import sys; from orgthink.cli import main; sys.exit(main(['run', '--bogus', '3']))"
    where = {**os.environ, "TERM": "xterm-256color"}
    with os.fdopen(ours, "rb", buffering=0) as shown:
        ran = subprocess.run([sys.executable, "-c", code], stdin=terminal, stdout=terminal, stderr=terminal, env=where)
        text = shown.read(10_000).decode()
        os.close(terminal)
    assert ran.returncode == 2 and "orgthink: Unrecognized options: --bogus" in text and "u001b" not in text
