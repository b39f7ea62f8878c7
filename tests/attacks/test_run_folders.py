"""Run folders: two processes at once, folders from somebody else, damaged files, kills in the middle of a write."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from attacks.catalogue import Attack, each
from attacks.killing import forked
from rule_engine import RuleEngine, countdown
from small import TASK
from terse import TERSE

import orgthink.engines
import orgthink.training.recipes.registry
from orgthink.cli import main
from orgthink.engines import EngineSpec
from orgthink.record import folder as store
from orgthink.record.episode import StopReason
from orgthink.record.episode_json import dump
from orgthink.record.folder import RunFolder
from orgthink.util import files
from orgthink.util.errors import UserError

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
EVAL = ["eval", "--model", "m", "--task", TASK, "--prompts", TERSE, "--organizations", "sequential", "--n", "4"]

ALONE = "One process at a time writes a run folder; a second one changes nothing there."
OWN = "Nothing is written through a link that lies in a folder."
WHOLE = "What cannot be read is named by file and line, and nothing in the folder is changed."
KILLED = "Wherever a process is killed, a resume finds every finished episode once and goes on."
FULL = "On a full disk what was written stays whole, and the run can go on."


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RuleEngine:
    """Whatever model is named, it is this one. The current folder is empty."""
    engine = RuleEngine(countdown)

    async def open_engine(spec: EngineSpec) -> RuleEngine:
        return engine

    monkeypatch.setattr(orgthink.engines, "open_engine", open_engine)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m").mkdir()
    return engine


@pytest.fixture
def run(model: RuleEngine, capsys: pytest.CaptureFixture[str]) -> Path:
    """A finished run of four episodes, at `run`."""
    assert main([*EVAL, "--out", "run"]) == 0
    capsys.readouterr()
    return Path("run")


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on standard error."""
    (line,) = capsys.readouterr().err.splitlines()
    return line


def snapshot(folder: Path) -> dict[str, bytes | str]:
    """Everything in a folder: contents of files, targets of links."""
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if (path.is_symlink() or path.is_file()) and path.name != files.LOCK
    }


def ids(folder: Path) -> list[str]:
    return [episode.id for episode in RunFolder.open(folder).episodes()]


def unfinished(run: Path) -> None:
    """Take the last episode away."""
    lines = (run / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    (run / "episodes.jsonl").write_bytes(b"".join(lines[:-1]))


# Two processes


HOLD = """
import sys
from pathlib import Path
from orgthink.record.folder import RunFolder
folder = RunFolder.open(Path(sys.argv[1]))
with folder.journal():
    print("written", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(run: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that writes the run."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}"}
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(run)], env=environment, stdin=pipe, stdout=pipe)
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == b"written\n"
    yield process
    process.kill()
    process.communicate()


def overwritten(run: Path) -> int:
    """What `orgthink demo` does to the run of an earlier demo."""
    settings = RunFolder.open(run).config["settings"]
    try:
        RunFolder.create(run, "eval", settings, overwrite=True)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


@each(
    Attack("two processes resume one run", ALONE, "the second stops at once, exit code 2", ["eval", "--resume", "run"]),
    Attack("a new run is made where another is being written", ALONE, "refused, exit code 2", [*EVAL, "--out", "run"]),
    Attack("a run is replaced while another process writes it", ALONE, "refused before anything is deleted", None),
)
def test_a_second_process_is_kept_out(
    attack: Attack, run: Path, holder: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    unfinished(run)
    before = snapshot(run)
    assert (overwritten(run) if attack.given is None else main(attack.given)) == 2
    line = complaint(capsys)
    assert "run " in line and ("choose another folder" in line or "--resume" in line)
    assert snapshot(run) == before


@each(
    Attack("a process that writes a run is killed with SIGKILL", ALONE, "its lock ends with it", signal.SIGKILL),
    Attack("a process that writes a run is ended with SIGTERM", ALONE, "its lock ends with it", signal.SIGTERM),
)
def test_a_dead_process_keeps_nobody_out(
    attack: Attack, run: Path, holder: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    unfinished(run)
    holder.send_signal(attack.given)
    holder.wait()
    assert main(["eval", "--resume", "run"]) == 0
    assert len(ids(run)) == len(set(ids(run))) == 4


@each(
    Attack(
        "a second new run is made in one `--out` while the first opens its model",
        ALONE,
        "the one that comes later stops with exit code 2 before its first episode",
        (orgthink.engines, "open_engine", [2, 0]),
    ),
    Attack(
        "a second new run is made in one `--out` while the first makes its folder",
        ALONE,
        "the second stops with exit code 2; no episode is there twice",
        (store.RunFolder, "write_json", [0, 2]),
    ),
    Attack(
        "a second new run is made in one `--out` just before the first makes its folder",
        ALONE,
        "the first stops with exit code 2; no episode is there twice",
        (store, "provenance", [2, 0]),
    ),
)
def test_one_of_two_new_runs_wins(attack: Attack, model: RuleEngine, capsys: pytest.CaptureFixture[str]) -> None:
    """The other process runs from its beginning to its end where this one calls a certain function."""
    module, name, expected = attack.given
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*map(str, sys.path), str(ROOT)])}
    others: list[int] = []
    before = getattr(module, name)

    def called(*arguments: Any) -> Any:
        if not others:
            others.append(subprocess.run([sys.executable, "-c", OTHER], env=environment, check=False).returncode)
        return before(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, called)
        assert [main([*EVAL, "--out", "run"]), *others] == expected
    assert len(ids(Path("run"))) == len(set(ids(Path("run")))) == 4


OTHER = f"""
import orgthink.engines, sys
from orgthink.cli import main
from rule_engine import RuleEngine, countdown
async def open_engine(spec): return RuleEngine(countdown)
orgthink.engines.open_engine = open_engine
sys.exit(main({[*EVAL, "--out", "run"]!r}))
"""


# Folders from somebody else


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of the user's that no run may change: without a newline, it looks like an incomplete line."""
    file = tmp_path / "secret"
    file.write_text("do not touch")
    return file


RESUME, VIEW = ["eval", "--resume", "run"], ["view", "run"]
SAME = "the target is unchanged"


@each(
    Attack("`.view.html.tmp` is a link, `view` writes view.html", OWN, SAME, (".view.html.tmp", VIEW)),
    Attack("view.html is a link", OWN, "the page replaces the link", ("view.html", VIEW)),
)
def test_a_link_leads_nowhere(attack: Attack, run: Path, secret: Path) -> None:
    unfinished(run)
    name, argv = attack.given
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(secret)
    assert main(argv) == 0
    assert secret.read_text() == "do not touch"


@each(
    *(
        Attack(f"{name} is a link, and the run is resumed", OWN, "refused, exit code 2", name)
        for name in ("episodes.jsonl", "metrics.jsonl", files.LOCK)
    ),
)
def test_nothing_is_appended_through_a_link(
    attack: Attack, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unfinished(run)
    target = tmp_path / "target"
    target.write_bytes((run / attack.given).read_bytes() if (run / attack.given).exists() else b"do not touch\n")
    before = target.read_bytes()
    (run / attack.given).unlink(missing_ok=True)
    (run / attack.given).symlink_to(target)
    assert main(RESUME) == 2
    assert f"{attack.given} is a link" in complaint(capsys)
    assert target.read_bytes() == before


# Outputs that would replace something else


OUTPUTS = "An output replaces a file, never a pipe, a device or what a run computed."
TO = {
    "view --out": [*VIEW, "--out"],
    "export problems": ["export", "problems", TASK, "--n", "1", "--out"],
}


@each(
    *(Attack(f"`{name}` to a pipe", OUTPUTS, "refused, exit code 2", (argv, "pipe")) for name, argv in TO.items()),
    Attack("`view --out` to a link to /dev/null, such as /dev/stdout may be", OUTPUTS, "refused, exit code 2",
           (TO["view --out"], "link")),
)  # fmt: skip
def test_an_output_is_no_pipe(attack: Attack, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv, what = attack.given
    target = Path("pipe.eval")
    os.mkfifo(target) if what == "pipe" else target.symlink_to("/dev/null")
    before = target.lstat()
    assert main([*argv, str(target)]) == 2
    assert "pipe.eval is a pipe or a device" in complaint(capsys)
    assert target.lstat().st_ino == before.st_ino and not list(Path().glob(".*.tmp"))


@each(
    *(
        Attack(f"`{name}` to episodes.jsonl of a run", OUTPUTS, "refused, exit code 2", (argv, "run/episodes.jsonl"))
        for name, argv in TO.items()
    ),
    Attack("`export rows` to episodes.jsonl of a run", OUTPUTS, "refused, exit code 2",
           (["export", "rows", "run", "--recipe", "x", "--out"], "run/../run/episodes.jsonl")),
)  # fmt: skip
def test_an_output_replaces_no_data(attack: Attack, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv, target = attack.given
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    Path(target).touch()
    before = snapshot(run)
    assert main([*argv, target]) == 2
    assert f"{target} belongs to a run" in complaint(capsys)
    assert snapshot(run) == before


# Files that have no end, and files that are not what they should be


def replaced(name: str, by: str) -> Callable[[Path], None]:
    """Put something else in the place of a file."""

    def replace(run: Path) -> None:
        (run / name).unlink(missing_ok=True)
        if by == "pipe":
            os.mkfifo(run / name)
        elif by == "folder":
            (run / name).mkdir()
        else:
            (run / name).symlink_to(by)

    return replace


def longer(name: str, size: int) -> Callable[[Path], None]:
    """A file of zeros that takes no room on the disk."""

    def make(run: Path) -> None:
        (run / name).write_bytes(b"")
        os.truncate(run / name, size)

    return make


@each(
    Attack(
        "a line of episodes.jsonl that never ends",
        WHOLE,
        "refused after 1 GiB (here 1 MiB) by the number of the line; memory stays bounded",
        longer("episodes.jsonl", 1 << 40),
    )
)
def test_a_line_without_end(
    attack: Attack, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(files, "LONGEST_LINE", 1 << 20)
    attack.given(run)
    assert main(["view", "run"]) == 2
    assert "episodes.jsonl, line 1: longer than 1 MiB" in complaint(capsys)


# Records that fit their types and make no sense


# Kills, and a full disk


@each(
    Attack("SIGKILL at any moment of a new evaluation", KILLED, "resumed, or begun anew, to the end", None),
    Attack("SIGKILL at any moment of a resumed evaluation", KILLED, "resumed to the end", False),
    Attack("SIGKILL at any moment while failed episodes move away", KILLED, "resumed to the end", True),
)
def test_a_kill_in_the_middle_of_an_evaluation(
    attack: Attack, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = ids(run)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    if attack.given is not None:
        unfinished(run)
        with (run / "episodes.jsonl").open("ab") as file:
            file.write(b'{"torn": ')
    if attack.given:
        spoiled(run)
    start = shutil.copytree(run, "start")
    for operation in range(1, 1000):
        shutil.rmtree(run)
        argv = [*EVAL, "--out", "run"]
        if attack.given is not None:
            shutil.copytree(start, run)
            argv = ["eval", "--resume", "run"]
        ended = forked(Path(run), operation, lambda argv=argv: main(argv))
        begun = (run / "config.json").exists()
        assert main(["eval", "--resume", "run"] if begun else argv) == 0
        assert sorted(ids(run)) == sorted(whole)
        assert list(run.glob(".*.tmp")) == []
        if ended:
            break
    assert ended and operation > 10
    capsys.readouterr()


def spoiled(run: Path) -> None:
    """Make the first episode one that an engine failed."""
    first, *others = RunFolder.open(run).episodes()
    failed = replace(first, stop=StopReason.ERROR, answer=None, grade=None, error="gone")
    (run / "episodes.jsonl").write_bytes(b"".join(map(dump, [failed, *others])))


@each(
    Attack("the disk is full in the middle of an evaluation", FULL, "one line that says how to go on, exit code 2"),
)
def test_a_full_disk_in_the_middle(attack: Attack, model: RuleEngine, capsys: pytest.CaptureFixture[str]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, hard))
    try:
        assert main([*EVAL, "--out", "run", "--n", "10"]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    line = capsys.readouterr().err.splitlines()[-1]
    assert "run cannot be written: File too large" in line and "orgthink eval --resume run" in line
    done = ids(Path("run"))
    assert 0 < len(done) < 10
    assert main(["eval", "--resume", "run"]) == 0
    assert ids(Path("run"))[: len(done)] == done and len(set(ids(Path("run")))) == 10


# Places
