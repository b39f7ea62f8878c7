"""Run folders: two processes at once, folders from somebody else, damaged files, kills in the middle of a write."""

from __future__ import annotations

import errno
import fcntl
import json
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
ENDS = "A command never waits for a file that has no end."
WHOLE = "What cannot be read is named by file and line, and nothing in the folder is changed."
KILLED = "Wherever a process is killed, a resume finds every finished episode once and goes on."
FULL = "On a full disk what was written stays whole, and the run can go on."
CLEAR = "A folder that cannot be used gets one line that names it, and exit code 2."


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


@each(
    Attack(
        "another process replaces a run between its making and its first episode",
        ALONE,
        "the first run refuses to write its episodes beside the other's config.json",
    )
)
def test_a_replaced_run_is_noticed(attack: Attack, run: Path) -> None:
    first = RunFolder.open(run)
    RunFolder.create(run, "synth", None, overwrite=True)
    with pytest.raises(UserError, match="now holds another run"), first.journal():
        raise AssertionError("it writes")


MOVED = "the next write by path ends the first with one line; nothing of the second is changed"


@each(
    Attack("a run folder is moved and another run begun at its place, the first writes its summary", ALONE, MOVED,
           lambda folder, journal: folder.write_json("summary.json", {})),
    Attack("a run folder is moved and another run begun at its place, the first writes a page", ALONE, MOVED,
           lambda folder, journal: folder.write("view.html", "")),
    Attack("a run folder is moved and another run begun at its place, the first reads back an episode", ALONE, MOVED,
           lambda folder, journal: journal.at(0)),
)  # fmt: skip
def test_a_moved_folder_is_noticed(attack: Attack, run: Path) -> None:
    folder = RunFolder.open(run)
    with folder.journal() as journal:
        run.rename("moved")
        shutil.copytree("moved", run)
        before = snapshot(run), snapshot(Path("moved"))
        with pytest.raises(UserError, match=r"run was moved or removed .* --resume"):
            attack.given(folder, journal)
        assert (snapshot(run), snapshot(Path("moved"))) == before


@each(
    Attack("a lock file that is a link", OWN, "refused; its target is neither made nor changed", "link"),
    Attack("a lock file that is a pipe", ENDS, "refused at once", "pipe"),
    Attack("a lock file that is a folder", CLEAR, "one line, exit code 2", "folder"),
)
def test_a_lock_that_is_no_file(attack: Attack, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unfinished(run)
    lock = run / files.LOCK
    lock.unlink()
    {"link": lambda: lock.symlink_to("../mine"), "pipe": lambda: os.mkfifo(lock), "folder": lock.mkdir}[attack.given]()
    before = snapshot(run)
    assert main(["eval", "--resume", "run"]) == 2
    assert complaint(capsys).startswith("orgthink: run")
    assert snapshot(run) == before and not Path("mine").exists()


@each(
    Attack("a file system that has no locks", CLEAR, "refused; the line says to use a local disk", errno.ENOTSUP),
    Attack(
        "a file system whose lock server is gone", CLEAR, "refused; the line says to use a local disk", errno.ENOLCK
    ),
)
def test_without_locks_nothing_is_written(
    attack: Attack, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def flock(file: Any, how: int) -> None:
        raise OSError(attack.given, os.strerror(attack.given))

    unfinished(run)
    monkeypatch.setattr(fcntl, "flock", flock)
    before = snapshot(run)
    assert main(["eval", "--resume", "run"]) == main([*EVAL, "--out", "new"]) == 2
    assert all("without locks" in line and "local disk" in line for line in capsys.readouterr().err.splitlines())
    assert snapshot(run) == before and not Path("new/config.json").exists()


@each(
    *(
        Attack(f"an episode is there twice, read by `{name}`", WHOLE, "refused; the line names both places", argv)
        for name, argv in {
            "eval --resume": ["eval", "--resume", "run"],
            "view": ["view", "run"],
            "measure": ["measure", "run"],
            "export": ["export", "problems", TASK, "--mixed", "run", "--out", "x.parquet"],
        }.items()
    )
)
def test_a_doubled_episode_is_refused(attack: Attack, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (run / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    (run / "episodes.jsonl").write_bytes(b"".join([*lines, lines[1]]))
    before = snapshot(run)
    assert main(attack.given) == 2
    line = complaint(capsys)
    assert "line 5" in line and "in line 2 already" in line and "delete one" in line
    assert snapshot(run) == before


# Folders from somebody else


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of the user's that no run may change: without a newline, it looks like an incomplete line."""
    file = tmp_path / "secret"
    file.write_text("do not touch")
    return file


RESUME, VIEW = ["eval", "--resume", "run"], ["view", "run"]
TRACE = [*VIEW, "--perfetto", "run/trace.json"]
SAME = "the target is unchanged"


@each(
    Attack("`.view.html.tmp` is a link, `view` writes view.html", OWN, SAME, (".view.html.tmp", VIEW)),
    Attack("view.html is a link", OWN, "the page replaces the link", ("view.html", VIEW)),
    Attack("`.trace.json.tmp` is a link, `--perfetto` writes trace.json", OWN, SAME, (".trace.json.tmp", TRACE)),
)
def test_a_link_leads_nowhere(attack: Attack, run: Path, secret: Path) -> None:
    unfinished(run)
    name, argv = attack.given
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(secret)
    assert main(argv) == 0
    assert secret.read_text() == "do not touch"


@each(
    Attack("episodes.jsonl is a link to a file of the user's", OWN, "a resume is refused, " + SAME, "episodes.jsonl"),
    Attack("metrics.jsonl is a link to a file of the user's", OWN, "a resume is refused, " + SAME, "metrics.jsonl"),
)
def test_nothing_is_appended_through_a_link(
    attack: Attack, run: Path, secret: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unfinished(run)
    (run / attack.given).unlink()
    (run / attack.given).symlink_to(secret)
    assert main(["eval", "--resume", "run"]) == 2
    assert f"{attack.given} is a link" in complaint(capsys)
    assert secret.read_text() == "do not touch"


@each(Attack("crashes.log is a link, a bug ends an episode", OWN, "refused, " + SAME))
def test_no_traceback_through_a_link(attack: Attack, run: Path, secret: Path) -> None:
    Path("run/crashes.log").symlink_to(secret)
    with RunFolder.open(run).journal() as journal, pytest.raises(UserError, match=r"crashes\.log is a link"):
        try:
            raise ZeroDivisionError
        except ZeroDivisionError as bug:
            journal.crash("a", bug)
    assert secret.read_text() == "do not touch"


# Outputs that would replace something else


OUTPUTS = "An output replaces a file, never a pipe, a device or what a run computed."
TO = {
    "view --out": [*VIEW, "--out"],
    "view --perfetto": [*VIEW, "--out", "v.html", "--perfetto"],
    "export problems": ["export", "problems", TASK, "--n", "1", "--out"],
    "export inspect": ["export", "inspect", "run", "--out"],
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
        Attack(f"`{name}` to {file} of a run", OUTPUTS, "refused, exit code 2", (argv, f"run/{file}"))
        for name, argv in TO.items()
        for file in ("episodes.jsonl", "config.json", "metrics.jsonl", ".lock")
        if "inspect" not in name
    ),
    *(
        Attack(f"`{name}` to {file} of a run", OUTPUTS, "refused, exit code 2", (argv, f"run/{file}"))
        for name, argv in TO.items()
        for file in ("checkpoints/step-000010/trainer.pt", "trajectories.json", "spent.json")
        if "inspect" not in name
    ),
    Attack("`export rows` to episodes.jsonl of a run", OUTPUTS, "refused, exit code 2",
           (["export", "rows", "run", "--to", "verl", "--recipe", "x", "--out"], "run/../run/episodes.jsonl")),
)  # fmt: skip
def test_an_output_replaces_no_data(attack: Attack, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv, target = attack.given
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    Path(target).touch()
    before = snapshot(run)
    assert main([*argv, target]) == 2
    assert f"{target} belongs to the run" in complaint(capsys)
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


def holding(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda run: (run / name).write_bytes(content)


def longer(name: str, size: int) -> Callable[[Path], None]:
    """A file of zeros that takes no room on the disk."""

    def make(run: Path) -> None:
        (run / name).write_bytes(b"")
        os.truncate(run / name, size)

    return make


DEEP, MARK = b"[" * 1_000_000, b"\xef\xbb\xbf"


@each(
    Attack("episodes.jsonl is a pipe", ENDS, "refused at once", replaced("episodes.jsonl", "pipe")),
    Attack("episodes.jsonl is a link to /dev/zero", ENDS, "refused at once", replaced("episodes.jsonl", "/dev/zero")),
    Attack("episodes.jsonl begins with a byte order mark", WHOLE, "line 1", holding("episodes.jsonl", MARK + b"{}\n")),
)
@pytest.mark.parametrize("argv", [["view", "run"], ["measure", "run"], ["eval", "--resume", "run"]], ids=" ".join)
def test_what_is_no_file_of_a_run(
    attack: Attack, argv: list[str], run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    attack.given(run)
    before = sorted(run.iterdir())
    assert main(argv) == 2
    line = complaint(capsys)
    assert line.startswith("orgthink: run")
    assert attack.outcome != "line 1" or "line 1" in line
    assert [path for path in sorted(run.iterdir()) if path.name != files.LOCK] == [
        path for path in before if path.name != files.LOCK
    ]


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


@each(
    Attack("metrics.jsonl of a training is a pipe", ENDS, "refused at once", replaced("metrics.jsonl", "pipe")),
    Attack("metrics.jsonl of a training holds lists", WHOLE, "line 1 is named", holding("metrics.jsonl", b"[1]\n")),
    Attack("metrics.jsonl of a training holds zero bytes", WHOLE, "line 1 is named", holding("metrics.jsonl", b"\0\n")),
)
def test_metrics_that_are_none(attack: Attack, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configured(run, kind="train")
    attack.given(run)
    assert main(["measure", "run"]) == 2
    assert "metrics.jsonl" in capsys.readouterr().err.splitlines()[-1]


def configured(run: Path, **changes: Any) -> None:
    """Change entries of config.json; those that become `None` go."""
    config = json.loads((run / "config.json").read_text()) | changes
    gone = [name for name, value in changes.items() if value is None]
    (run / "config.json").write_text(json.dumps({name: value for name, value in config.items() if name not in gone}))


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
        assert [path.name for path in run.iterdir() if path.name.startswith(".episodes")] == []
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


@each(
    Attack("a run folder that one may only read is viewed", CLEAR, "one line, exit code 2; `--out` elsewhere works"),
)
def test_a_read_only_folder(attack: Attack, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may write everywhere, so the refusal is played."""
    opened = Path.open

    def read_only(self: Path, mode: str = "r", *others: Any, **named: Any) -> Any:
        if "run" in self.parts and not mode.startswith("r"):
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return opened(self, mode, *others, **named)

    monkeypatch.setattr(Path, "open", read_only)
    assert main(["view", "run"]) == 2
    assert main(["view", "run", "--out", "page.html"]) == main(["measure", "run"]) == 0
    assert main(["eval", "--resume", "run"]) == 0, "it is complete: its table is printed"
