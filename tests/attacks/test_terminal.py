"""What is printed steers no terminal: text of models, servers, files and run folders is shown, never obeyed."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unicodedata import category

import pytest
from attacks.catalogue import Attack, each
from attacks.serving import serving
from loopback import Exchange, answers

import orgthink
from orgthink.cli import main
from orgthink.evaluation.plan import Evaluation
from orgthink.evaluation.specs import OrganizationSpec
from orgthink.record.episode import Episode, Origin, Problem, Span, Trace
from orgthink.record.folder import RunFolder
from orgthink.util.http import RetryPolicy

pytestmark = pytest.mark.thorough

CLIPBOARD = "\x1b]52;c;cm0gLXJm\x07"
ROOT = Path(orgthink.__file__).parent.parent


INKLESS = re.compile(
    "[\u3164\u115f\u1160\uffa0\u2800\u034f\u17b4\u2065\u180b-\u180f\ufe00-\ufe0d\U000e0000-\U000e0fff]"
)


def steering(text: str) -> list[str]:
    """Characters that a terminal obeys, or does not show."""
    unseen = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return [one for one in text if (category(one) in unseen and one not in "\n\t") or INKLESS.match(one)]


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)


def piece(text: str):
    """An answer whose text is one event, so that it comes as it is."""

    async def play(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.say(f"<ANSWER> seen {text} seen </ANSWER>", "stop")
        await exchange.end()

    return play


MODEL_TEXT = "What a model says is shown and never obeyed: controls and unseen characters are spelled out"
SPELLED = "`\\u001b` and the like in the text"


@each(
    Attack("a model writes to the clipboard (OSC 52)", MODEL_TEXT, SPELLED, CLIPBOARD),
    Attack("a model sets the title of the window", MODEL_TEXT, SPELLED, "\x1b]0;root\x07"),
    Attack("a model annotates between lines", MODEL_TEXT, SPELLED, "\ufff9a\ufffab\ufffb"),
)
def test_text_of_a_model(attack: Attack, capfd: pytest.CaptureFixture[str]) -> None:
    with serving(piece(attack.given)) as server:
        assert main(["run", "What?", "--url", server.url]) == 0
    out, err = capfd.readouterr()
    assert steering(out + err) == [] and out.count("seen") >= 4, out


def episode(**fields) -> Episode:
    """Of a task that is not installed here, with these fields; `says` is what its only agent said."""
    span = Span(Origin.SAMPLED, fields.pop("says", "x"), 1)
    root = Trace("thinker", fields.pop("role", "thinker"), None, (span,), model=fields.pop("model", "m"))
    return replace(Episode("e", Problem("p", "absent", "What?"), "sequential", 2, (root,)), **fields)


TERMINAL = "On a terminal, too, only orgthink's own bar moves the cursor"


@each(
    Attack("a model writes to the clipboard of a real terminal", TERMINAL, SPELLED, ["run", "What?"]),
    Attack(
        "a server's error holds markup and sequences, on a real terminal",
        TERMINAL,
        SPELLED,
        ["eval", "--task", "countdown", "--n", "1", "--organizations", "sequential"],
    ),
)
def test_a_terminal(attack: Attack, tmp_path: Path) -> None:
    hostile = f"[/INST] {CLIPBOARD} \x1b]0;title\x07 \x9b2J"
    play = piece(hostile) if attack.given[0] == "run" else answers(400, hostile)
    ours, theirs = pty.openpty()
    with serving(play) as server:
        command = [sys.executable, "-m", "orgthink", *attack.given, "--url", server.url]
        path = os.pathsep.join((str(ROOT), str(ROOT / "pocket"), os.environ.get("PYTHONPATH", "")))
        surroundings = os.environ | {"PYTHONPATH": path, "TERM": "xterm-256color", "COLUMNS": "300"}
        run = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path, env=surroundings)
        os.close(theirs)
        screen = b"".join(iter(lambda: part_of(ours), b"")).decode()
        assert run.wait(60) in (0, 1)
    os.close(ours)
    assert "[/INST]" in screen
    assert not re.search("\x1b]|\x07|\x9b", screen)


def part_of(terminal: int) -> bytes:
    """What a terminal shows next; nothing once its programs have ended, which Linux tells by an error."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


SERVER_TEXT = "What a server says is shown on one line, without controls"


@each(
    Attack("a server's error is an escape sequence", SERVER_TEXT, SPELLED, answers(400, f"{CLIPBOARD}\r\nroot# ")),
    Attack("a server's error turns the order of the line", SERVER_TEXT, SPELLED, answers(500, "\u202egnorw")),
    Attack("a server's error is NULs", SERVER_TEXT, SPELLED, answers(400, "\0" * 500)),
)
def test_an_error_of_a_server(
    attack: Attack, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RetryPolicy, "delay", lambda *args: None)
    with serving(attack.given) as server:
        assert main(["run", "What?", "--url", server.url]) == 1
    out, err = capfd.readouterr()
    assert steering(out + err) == [] and "orgthink: " in err and len(out + err) < 5000


FOLDERS = "A run folder from somebody else is shown, never obeyed"


@each(
    Attack("a run folder's problem has an escape sequence for an id", FOLDERS, SPELLED, {"id": CLIPBOARD}),
    Attack("a run folder's organization is an escape sequence", FOLDERS, SPELLED, {"organization": CLIPBOARD}),
    Attack("a run folder's answer is an escape sequence", FOLDERS, SPELLED, {"answer": CLIPBOARD}),
)
def test_a_run_folder(attack: Attack, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    plan = Evaluation("absent", {"sequential": OrganizationSpec("sequential")}, 1)
    folder = RunFolder.create(tmp_path / "run", "eval", plan)
    with folder.journal() as journal:
        journal.append(episode(**attack.given))
    assert main(["view", str(folder.path), "--transcript"]) == 0
    assert main(["measure", str(folder.path)]) == 0
    assert main(["view", str(folder.path)]) == 0
    assert main(["view", str(folder.path), "--episode", "no such"]) == 2
    out, err = capfd.readouterr()
    assert steering(out + err) == []
