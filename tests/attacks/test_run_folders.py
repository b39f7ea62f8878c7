"""Run folders: two processes at once, folders from somebody else, damaged files, kills in the middle of a write."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attacks.catalogue import Attack, each
from rule_engine import RuleEngine, countdown
from small import TASK
from terse import TERSE

import orgthink.engines.opening
from orgthink import files, store
from orgthink.cli import main
from orgthink.engines import EngineSpec
from orgthink.episode import Episode, Problem, Trace
from orgthink.errors import UserError
from orgthink.store import RunFolder

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

    monkeypatch.setattr(orgthink.engines.opening, "open_engine", open_engine)
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
from orgthink.store import RunFolder
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
        (orgthink.engines.opening, "open_engine", [2, 0]),
    ),
    Attack(
        "a second new run is made in one `--out` while the first makes its folder",
        ALONE,
        "the second stops with exit code 2; no episode is there twice",
        (store, "provenance", [0, 2]),
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
import orgthink.engines.opening, sys
from orgthink.cli import main
from rule_engine import RuleEngine, countdown
async def open_engine(spec): return RuleEngine(countdown)
orgthink.engines.opening.open_engine = open_engine
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
    Attack("`.summary.json.tmp` is a link, a run is resumed", OWN, SAME, (".summary.json.tmp", RESUME)),
    Attack("summary.json is a link", OWN, "the summary replaces the link", ("summary.json", RESUME)),
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


@each(
    Attack("failed.jsonl is a link, a failed episode moves there", OWN, "a resume is refused, both files are unchanged")
)
def test_failed_episodes_do_not_move_through_a_link(attack: Attack, model: RuleEngine, secret: Path) -> None:
    folder = RunFolder.create(Path("run"), "eval", None)
    with folder.journal() as journal:
        journal.append(Episode("a", Problem("p", "t", "x"), "sequential", 2, (Trace("a", "a", None, ()),)))
    Path("run/failed.jsonl").symlink_to(secret)
    with pytest.raises(UserError, match=r"failed\.jsonl is a link"), folder.journal(redo=lambda episode: True):
        raise AssertionError("it writes")
    assert secret.read_text() == "do not touch" and ids(folder.path) == ["a"]
