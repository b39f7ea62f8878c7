"""What is printed steers no terminal: text of models, servers, files and run folders is shown, never obeyed."""

from __future__ import annotations

import ast
import io
import json
import logging
import os
import pty
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from unicodedata import category

import pytest
from attacks.catalogue import Attack, each
from attacks.serving import serving
from loopback import Exchange, answers, says
from rich.console import Console

import orgthink
from orgthink.cli import main, progress
from orgthink.engines import EngineSpec
from orgthink.engines.endpoint.client import EndpointEngine
from orgthink.evaluate.plan import Evaluation
from orgthink.evaluate.specs import OrganizationSpec
from orgthink.record.episode import Episode, Grade, Origin, Problem, Span, Trace
from orgthink.record.folder import RunFolder
from orgthink.util.errors import EngineError, Failure, UserError
from orgthink.util.http import RetryPolicy
from orgthink.util.terminal import clean, clean_tracebacks

pytestmark = pytest.mark.thorough

CLIPBOARD = "\x1b]52;c;cm0gLXJm\x07"
TAGS = "".join(chr(0xE0000 + ord(letter)) for letter in "rm -rf")
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
    Attack("a model clears the screen", MODEL_TEXT, SPELLED, "\x1b[2J\x1b[H"),
    Attack("a model colours its text", MODEL_TEXT, SPELLED, "\x1b[32m4 of 4 right\x1b[0m"),
    Attack("a model opens the alternate screen", MODEL_TEXT, SPELLED, "\x1b[?1049h"),
    Attack("a model asks for reports of the mouse", MODEL_TEXT, SPELLED, "\x1b[?1003h"),
    Attack("a model asks the terminal to type its answer", MODEL_TEXT, SPELLED, "\x1b[6n\x1b[c"),
    Attack(
        "a model hides a link behind text (OSC 8)", MODEL_TEXT, SPELLED, "\x1b]8;;http://evil\x1b\\ok\x1b]8;;\x1b\\"
    ),
    Attack("a model writes a file by iTerm's OSC 1337", MODEL_TEXT, SPELLED, "\x1b]1337;File=name=eA==:eA==\x07"),
    Attack("a model sends a device control string", MODEL_TEXT, SPELLED, "\x1bP$q\x1b\\"),
    Attack("a model begins a sequence with a C1 control", MODEL_TEXT, SPELLED, "\x9b2J\x9d0;x\x9c"),
    Attack("a model overwrites its line after a carriage return", MODEL_TEXT, SPELLED, "wrong\rright"),
    Attack("a model takes characters back", MODEL_TEXT, SPELLED, "no\b\byes"),
    Attack("a model rings", MODEL_TEXT, SPELLED, "\a\a\a"),
    Attack("a model writes NUL and DEL", MODEL_TEXT, SPELLED, "\0\x7f"),
    Attack("a model feeds a form and a vertical tab", MODEL_TEXT, SPELLED, "\f\v"),
    Attack("a model changes the character set", MODEL_TEXT, SPELLED, "\x0e\x1b(0lqk\x0f"),
    Attack("a model turns the order of the text", MODEL_TEXT, SPELLED, "\u202egnorw\u202c"),
    Attack("a model isolates text from right to left", MODEL_TEXT, SPELLED, "\u2067abc\u2069"),
    Attack("a model hides text in zero-width characters", MODEL_TEXT, SPELLED, "a\u200b\u200c\u200d\u2060b"),
    Attack(
        "a model writes letters without any ink", MODEL_TEXT, SPELLED, "a\u3164\u115f\u1160\uffa0\u2800\u034f\u17b4b"
    ),
    Attack("a model hides text in tag characters", MODEL_TEXT, SPELLED, TAGS),
    Attack("a model writes byte order marks and soft hyphens", MODEL_TEXT, SPELLED, "\ufeffa\u00adb"),
    Attack("a model separates lines and paragraphs", MODEL_TEXT, SPELLED, "a\u2028b\u2029c\u0085d"),
    Attack("a model writes half a surrogate pair", MODEL_TEXT, SPELLED, "\ud83d"),
    Attack(
        "a model hides text in selectors of variants", MODEL_TEXT, SPELLED, "a\ufe00\U000e0141b\u180b\u2065\U000e0fff"
    ),
    Attack("a model annotates between lines", MODEL_TEXT, SPELLED, "\ufff9a\ufffab\ufffb"),
)
def test_text_of_a_model(attack: Attack, capfd: pytest.CaptureFixture[str]) -> None:
    with serving(piece(attack.given)) as server:
        assert main(["run", "What?", "--url", server.url]) == 0
    out, err = capfd.readouterr()
    assert steering(out + err) == [] and out.count("seen") >= 4, out


READABLE = "Text that people read stays as it is"


@each(
    Attack("text in many scripts, with emoji and tabs", READABLE, "the text", "Ω 漢字 עברית\tनमस्ते\u00a0😀\nnext – “…”"),
    Attack("text that looks like markup", READABLE, "the text", "[/INST] [bold]x[/bold] [link=http://x]y[/link] \\[z]"),
    Attack("text that looks like a format", READABLE, "the text", "%s {0} {task.id} \\x1b \\u001b"),
)
def test_other_text(attack: Attack) -> None:
    assert clean(attack.given) == attack.given


def episode(**fields) -> Episode:
    """Of a task that is not installed here, with these fields; `says` is what its only agent said."""
    span = Span(Origin.SAMPLED, fields.pop("says", "x"), 1)
    root = Trace("thinker", fields.pop("role", "thinker"), None, (span,), model=fields.pop("model", "m"))
    return replace(Episode("e", Problem("p", "absent", "What?"), "sequential", 2, (root,)), **fields)


BAR = "What stands in a progress bar is text, no markup"


@each(
    Attack("an error with `[/INST]` in a progress bar", BAR, "the text", episode(error="[/INST] went wrong")),
    Attack(
        "a problem called `[/bold]` in a progress bar", BAR, "the text", episode(problem=Problem("[/bold]", "t", "?"))
    ),
    Attack("an organization called `[red]` in a progress bar", BAR, "the text", episode(organization="[red]")),
    Attack("an escape sequence in a progress bar", BAR, SPELLED, episode(problem=Problem("\x1b]0;x\x07", "t", "?"))),
)
def test_a_progress_bar(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, color_system=None, width=200)
    monkeypatch.setattr("rich.console.Console", lambda **settings: console)
    with progress.progress(1) as advance:
        advance(1, progress.describe(attack.given))
    shown = screen.getvalue()
    assert "\x1b]" not in shown and "\x07" not in shown
    for text in ("[/INST]", "[/bold]", "[red]"):
        named = f"{attack.given.error}{attack.given.problem.id}{attack.given.organization}"
        assert (text in shown) == (text in named)


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


NAMES = "A name with control characters is shown, never obeyed"
LINE = "one line, exit code 2"


@each(
    Attack("a file is called by an escape sequence", NAMES, LINE, ["measure", f"{CLIPBOARD}.json"]),
    Attack("a run folder is called by an escape sequence", NAMES, LINE, ["view", CLIPBOARD]),
    Attack("a run to go on with is called by an escape sequence", NAMES, LINE, ["eval", "--resume", CLIPBOARD]),
    Attack("a model is called by an escape sequence", NAMES, LINE, ["run", "x", "--model", CLIPBOARD]),
    Attack("a task is called by an escape sequence", NAMES, LINE, ["run", "--task", CLIPBOARD, "--url", "http://x"]),
    Attack("an organization is called by an escape sequence", NAMES, LINE, ["eval", "--organizations", CLIPBOARD]),
    Attack(
        "a setting is called by an escape sequence", NAMES, LINE, ["run", "x", "--url", "http://x", "--set", "\x9b=1"]
    ),
    Attack("an option is called by an escape sequence", NAMES, LINE, ["run", "x", f"--{CLIPBOARD}"]),
    Attack("a command is called by an escape sequence", NAMES, LINE, [CLIPBOARD]),
    Attack("a kind to list is called by an escape sequence", NAMES, LINE, ["list", CLIPBOARD]),
    Attack("a URL holds an escape sequence", NAMES, LINE, ["run", "x", "--url", f"http://h{CLIPBOARD}/v1"]),
    Attack(
        "a file of problems turns its name round", NAMES, LINE, ["run", "--url", "http://x", "--task", "math:\u202ex"]
    ),
    Attack("a prompt style holds a line break and a title", NAMES, LINE, ["run", "x", "--prompts", "a\n\x1b]0;x\x07"]),
)
def test_names(attack: Attack, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(attack.given) == 2
    out, err = capfd.readouterr()
    assert steering(out + err) == [] and err.count("\n") == 1 and out == ""


SERVER_TEXT = "What a server says is shown on one line, without controls"


@each(
    Attack("a server's error is an escape sequence", SERVER_TEXT, SPELLED, answers(400, f"{CLIPBOARD}\r\nroot# ")),
    Attack("a server's error turns the order of the line", SERVER_TEXT, SPELLED, answers(500, "\u202egnorw")),
    Attack("a server's error is a megabyte", SERVER_TEXT, "its first 300 characters", answers(400, "long " * 200_000)),
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


@each(
    Attack("a server's only model is called by an escape sequence", SERVER_TEXT, SPELLED, CLIPBOARD),
    Attack("a server's only model is called by a line break and a prompt", SERVER_TEXT, SPELLED, "m\n\rroot# "),
)
def test_the_name_of_a_model(
    attack: Attack, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def choose(engine: EndpointEngine, model: str | None) -> str:
        return model or attack.given

    monkeypatch.setattr(EndpointEngine, "_choose", choose)
    with serving(says("<ANSWER> 1 </ANSWER>")) as server:
        command = ["eval", "--url", server.url, "--task", "countdown", "--n", "1", "--organizations", "sequential"]
        assert main([*command, "--out", str(tmp_path / "run")]) == 0
    assert main(["measure", str(tmp_path / "run")]) == 0
    out, err = capfd.readouterr()
    assert steering(out + err) == [] and "root# " not in [line[:6] for line in out.splitlines()]


FOLDERS = "A run folder from somebody else is shown, never obeyed"


@each(
    Attack("a run folder's problem has an escape sequence for an id", FOLDERS, SPELLED, {"id": CLIPBOARD}),
    Attack("a run folder's organization is an escape sequence", FOLDERS, SPELLED, {"organization": CLIPBOARD}),
    Attack("a run folder's agent says an escape sequence", FOLDERS, SPELLED, {"says": CLIPBOARD}),
    Attack("a run folder's agent has an escape sequence for a role", FOLDERS, SPELLED, {"role": CLIPBOARD}),
    Attack("a run folder's agent has an escape sequence for a model", FOLDERS, SPELLED, {"model": CLIPBOARD}),
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


@each(
    Attack(
        "an organization's name is an escape sequence, measured as JSON",
        "What is printed for programs stays JSON",
        "the name, escaped by JSON",
        CLIPBOARD,
    )
)
def test_json_stays_json(attack: Attack, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    plan = Evaluation("absent", {attack.given: OrganizationSpec("sequential")}, 1)
    folder = RunFolder.create(tmp_path / "run", "eval", plan)
    with folder.journal() as journal:
        journal.append(episode(organization=attack.given))
    assert main(["measure", "--json", str(folder.path)]) == 0
    out = capfd.readouterr().out
    assert list(json.loads(out)["summary"]) == [attack.given] and steering(out) == []


FORGED = "all is well\n[root] # "


@each(
    Attack("a problem's id holds a line break and a prompt", FOLDERS, "no line of its own", {"problem": FORGED}),
    Attack("an organization's name holds a line break", FOLDERS, "no line of its own", {"organization": FORGED}),
    Attack("an episode's id holds a line break", FOLDERS, "no line of its own", {"id": FORGED}),
    Attack("an agent's role holds a line break", FOLDERS, "no line of its own", {"role": FORGED}),
)
def test_a_line_that_nobody_printed(attack: Attack, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    given = dict(attack.given)
    problem = Problem(given.pop("problem", "p"), "t", "?")
    for name, right in (("before", 0), ("after", 1)):
        one = replace(episode(**given), problem=problem, grade=Grade(right, 1))
        engine = EngineSpec(f"{name}\n[root] # ")
        plan = Evaluation("absent", {one.organization: OrganizationSpec("sequential")}, 1, engine=engine)
        with RunFolder.create(tmp_path / name, "eval", plan).journal() as journal:
            journal.append(one)
    assert main(["compare", str(tmp_path / "before"), str(tmp_path / "after")]) == 0
    assert main(["view", str(tmp_path / "after"), "--transcript"]) == 0
    assert main(["measure", str(tmp_path / "after")]) == 0
    assert not any(line.startswith("[root]") for line in capfd.readouterr().out.splitlines())


class Unraisable:
    def __del__(self) -> None:
        raise ValueError(CLIPBOARD)


@each(
    Attack("an error of a destructor quotes an escape sequence", FOLDERS, SPELLED, "Unraisable()"),
    Attack("a warning quotes an escape sequence", FOLDERS, SPELLED, "warnings.warn(CLIPBOARD)"),
)
def test_what_python_prints(attack: Attack) -> None:
    code = (
        "import sys, warnings; from attacks.test_terminal import CLIPBOARD, Unraisable; "
        f"from orgthink.util.terminal import clean_tracebacks; clean_tracebacks(); {attack.given}"
    )
    paths = os.pathsep.join([str(ROOT), *map(str, sys.path)])
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": paths})
    assert steering(ran.stderr) == [] and "\\u001b]52" in ran.stderr


MESSAGE = "A message is one line without controls, wherever it is shown"


@each(
    Attack("a failure quotes an escape sequence", MESSAGE, SPELLED, Failure(f"no {CLIPBOARD}\n\r!")),
    Attack("an engine's error quotes an escape sequence", MESSAGE, SPELLED, EngineError("\x9b2J\u202e")),
    Attack("bad input quotes an escape sequence", MESSAGE, SPELLED, UserError(f"no {CLIPBOARD}\n\r!")),
)
def test_messages(attack: Attack) -> None:
    assert steering(str(attack.given)) == [] and "\n" not in str(attack.given)


BUG = "A bug's traceback and a log line are shown without controls"


@each(
    Attack("a plug-in fails with an escape sequence", BUG, SPELLED, f"raise RuntimeError({CLIPBOARD!r})"),
    Attack("a plug-in warns with an escape sequence", BUG, SPELLED, f"log().warning({CLIPBOARD!r}); raise KeyError"),
    Attack(
        "a plug-in's error has a cause with an escape sequence",
        BUG,
        SPELLED,
        f"raise RuntimeError('x') from ValueError({CLIPBOARD!r})",
    ),
)
def test_a_bug(attack: Attack, tmp_path: Path) -> None:
    file = tmp_path / "plugin.py"
    file.write_text(
        "import dataclasses, logging\nlog = logging.getLogger\n@dataclasses.dataclass\nclass Go:\n"
        f"    def __call__(self):\n        {attack.given}\n"
    )
    code = "import sys; from orgthink.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, f"{file}:Go"], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    lines = [line for line in done.stderr.splitlines() if "raise" not in line]  # the source, as the traceback quotes it
    assert done.returncode == 1 and "Traceback" in done.stderr and steering("".join(lines)) == []
    assert "\\u001b]52" in done.stderr


@each(
    Attack("the error of a bug in crashes.log is an escape sequence", BUG, SPELLED, CLIPBOARD),
    Attack("the error of a bug in crashes.log turns the order of text", BUG, SPELLED, "\u202e"),
)
def test_crashes_log(attack: Attack, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "eval", None)
    with folder.journal() as journal:
        journal.crash(f"id {attack.given}", RuntimeError(f"seen {attack.given}").with_traceback(_traceback()))
    log = (folder.path / "crashes.log").read_text()
    assert steering(log) == [] and "seen \\u" in log and log.count("\n") > 2


def _traceback() -> TracebackType:
    try:
        raise KeyError
    except KeyError as error:
        assert error.__traceback__ is not None
        return error.__traceback__


@each(
    Attack("a thread fails with an escape sequence", BUG, SPELLED, CLIPBOARD),
)
def test_a_thread(attack: Attack, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    clean_tracebacks()
    error = RuntimeError(attack.given)
    threading.excepthook(threading.ExceptHookArgs((RuntimeError, error, None, None)))
    err = capsys.readouterr().err
    assert "RuntimeError" in err and steering(err) == []


@each(
    Attack("a log line holds an escape sequence", BUG, SPELLED, ("%s", (CLIPBOARD,))),
    Attack("a log line holds a bidi override", BUG, SPELLED, ("\u202e", ())),
)
def test_a_log_line(attack: Attack, capsys: pytest.CaptureFixture[str]) -> None:
    clean_tracebacks()
    text, arguments = attack.given
    assert logging.lastResort is not None
    logging.lastResort.handle(logging.LogRecord("orgthink", logging.WARNING, "", 0, text, arguments, None))
    assert steering(capsys.readouterr().err) == []


@each(
    Attack(
        "a complaint quotes a megabyte",
        "A complaint is as long as a page at most, and says what is wrong",
        "the middle of the quotation is left out",
        "x" * 1_000_000,
    )
)
def test_a_long_complaint(attack: Attack, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "x", "--url", "http://127.0.0.1:9", "--organization", attack.given]) == 2
    err = capfd.readouterr().err
    assert len(err) < 4100 and err.startswith("orgthink: unknown organization 'xx") and "one of asyncthink" in err


@each(
    Attack(
        "a new `print` that passes no cleaner",
        "One function prints; nothing else in the package does",
        "a test that fails",
        {
            "orgthink/util/terminal.py",
            "orgthink/record/episode_json.py",
        },
    )
)
def test_one_function_prints(attack: Attack) -> None:
    """Only `episode_json` prints too: its own schema."""
    files = [*(ROOT / "orgthink").rglob("*.py"), *(ROOT / "packages").glob("*/orgthink_*/**/*.py")]
    printing = {
        str(file.relative_to(ROOT))
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
    }
    assert printing == attack.given
