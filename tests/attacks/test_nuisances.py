"""Small ways to waste the time of a user: messages that do not say what to do, and answers of very many lines."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from attacks.catalogue import Attack, each
from attacks.deadline import within

from orgthink.cli import _unframed
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.folder import RunFolder
from orgthink.runtime.organization import Organization
from orgthink.tasks import sudoku
from orgthink.util import terminal
from orgthink.util.errors import UserError, explained, user_input
from orgthink.util.files import SUMS, require_intact, sha256

LINEAR = "The grader of sudokus reads answers of a bounded number of lines."


@each(Attack("an answer of a million short lines", LINEAR, "it is wrong", "1 2\n" * 1_000_000))
def test_an_answer_of_many_lines(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(sudoku, "_row", lambda line, *size: read.append(line))
    assert within(60, lambda: sudoku.read(attack.given)) is None and len(read) <= 2 * sudoku.MOST_LINES


def test_a_damaged_line_says_how_to_go_on(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "eval", {})
    for name, read in (("episodes.jsonl", folder.episodes), ("metrics.jsonl", folder.metrics)):
        (folder.path / name).write_text("{damaged}\n")
        with pytest.raises(UserError, match=rf"{name}, line 1: .*; to go on without it, delete this line"):
            list(read())


@pytest.mark.parametrize("form", ["{} *{}", "{}  ./{}", "{}  {}\r", "{} *./{}\r"], ids=["binary", "dot", "CRLF", "all"])
def test_digests_of_other_programs_are_read(form: str, tmp_path: Path) -> None:
    for name, text in (("a b", "one"), ("weights", "two")):
        (tmp_path / name).write_text(text)
    lines = [form.format(sha256(tmp_path / name), name) for name in ("a b", "weights")]
    (tmp_path / SUMS).write_text("\n".join([*lines, "\r", ""]), newline="")
    require_intact(tmp_path)
    (tmp_path / SUMS).write_text(
        "\n".join(lines).upper().replace("WEIGHTS", "weights").replace("A B", "a b"), newline=""
    )
    require_intact(tmp_path)
    (tmp_path / "a b").write_text("another")
    with pytest.raises(UserError, match="a b is damaged"):
        require_intact(tmp_path)


def test_digests_of_files_outside_of_the_folder_are_refused(tmp_path: Path) -> None:
    inner = tmp_path / "model"
    inner.mkdir()
    (tmp_path / "other").write_text("there")
    for name in ("../other", str(tmp_path / "other"), "other" * 100):
        (inner / SUMS).write_text(f"{sha256(tmp_path / 'other')}  {name}\n")
        with pytest.raises(UserError, match="other is damaged"):
            require_intact(inner)


def test_places_that_log_are_counted_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "_logged", {})
    printed = Counter[int]()
    for second in range(0, 6_000, 2):
        record = logging.makeLogRecord({"pathname": "serve.py", "lineno": 7, "msg": "again", "created": float(second)})
        printed[second // 60] += terminal._first(record)
    assert set(printed.values()) == {terminal.MOST_LINES} and len(terminal._logged) == 1


def test_a_misspelt_setting_of_an_organization_in_python() -> None:
    with pytest.raises(UserError, match=r"unknown setting of AsyncThink 'tolerent': did you mean tolerant\?") as caught:
        AsyncThink(tolerent=True)
    assert "\n" not in str(caught.value)
    assert AsyncThink(tolerant=True).tolerant and pickle.loads(pickle.dumps(AsyncThink())) == AsyncThink()

    class Own(Organization):
        def __init__(self, *models: str, **more: int) -> None:
            self.models, self.more = models, more

    assert Own("a", anything=1).more == {"anything": 1}

    with pytest.raises(UserError, match="unknown setting of AsyncThink 'cls'"):
        AsyncThink(cls=1)  # pyrefly: ignore[unexpected-keyword]

    class Bare(Organization):
        pass

    for give in (lambda: Bare(workers=3), lambda: Bare(3)):
        with pytest.raises(UserError, match="Bare has no settings"):
            give()
    assert Bare().name == "Bare"


def test_a_user_error_keeps_its_cause() -> None:
    cause = OSError("gone")
    with pytest.raises(UserError, match="said") as caught, user_input():
        raise UserError("said") from cause
    assert caught.value.__cause__ is cause


@pytest.mark.parametrize("inner", [UserError("said"), ValueError("said")])
def test_a_traceback_says_what_a_user_did_once(inner: Exception) -> None:
    """A UserError that gets a place stood above itself in the tracebacks of Python: its words are in the new one."""
    with pytest.raises(UserError, match="here: said") as caught, explained("here", ValueError, UserError):
        raise inner
    assert caught.value.__cause__ is (None if isinstance(inner, UserError) else inner)


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
