"""The run folder: the record survives the disk, torn lines, foreign files and a full disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.record import episode_json
from orgthink.record import folder as store
from orgthink.record.episode import (
    Billed,
    Edge,
    EdgeKind,
    Episode,
    FormatError,
    FormatFault,
    Grade,
    Origin,
    Problem,
    Sampling,
    Span,
    StopReason,
    Trace,
)
from orgthink.record.folder import RunFolder
from orgthink.util.errors import UserError

HERE = Path(__file__).parent
GOLDEN = HERE / "golden" / "episodes.jsonl"


def episode(number: int = 0, **changes: object) -> Episode:
    prompt = Span(Origin.PROMPT, "think", 1, (7,))
    said = Span(Origin.SAMPLED, " né <JOIN-1>", 2, (1, 2), (-0.1, -1e-9), "v3", Sampling(9, stop=("a",)), 0.5, 1.25)
    back = Span(Origin.INJECTED, " 3 </JOIN-1>", 2, source="organizer/1")
    organizer = Trace(
        "organizer", "organizer", None, (prompt, said, back), (Edge(EdgeKind.FORK, "1", "organizer/1", 1),)
    )
    worker = Trace("organizer/1", "worker", "organizer", (), stop=StopReason.ERROR, error="gone", cost=0.25)
    made = Episode(
        id=f"p{number}|asyncthink|0",
        problem=Problem(f"p{number}", "countdown", "t", 4, {"numbers": [1, 2], "nested": {"a": None}}),
        organization="asyncthink",
        capacity=2,
        traces=(organizer, worker),
        answer="line\nbreak \u2028",
        format_faults=(FormatFault(FormatError.UNKNOWN_JOIN, "organizer", 2, "1"),),
        grade=Grade(1, 4),
    )
    return replace(made, **changes)


def new(path: Path, episodes: int = 0) -> RunFolder:
    folder = RunFolder.create(path, "eval", Sampling(5))
    with folder.journal() as journal:
        for number in range(episodes):
            journal.append(episode(number))
    return folder


def test_an_episode_comes_back_equal():
    assert episode_json.load(episode_json.dump(episode())) == episode()


@given(st.text(), st.lists(st.floats(-50, 0)), st.integers(0, 10**12))
def test_any_text_and_number_comes_back(text: str, logprobs: list[float], tokens: int):
    span = Span(Origin.SAMPLED, text, tokens, logprobs=tuple(logprobs))
    made = episode(traces=(Trace("a", "a", None, (span,)),), answer=text, format_faults=())
    line = episode_json.dump(made)
    assert episode_json.load(line) == made
    assert line.count(b"\n") == 1


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("bad", [float("nan"), float("-inf"), None])
def test_what_could_not_be_read_again_is_refused_and_the_folder_stays_whole(tmp_path: Path, bad: float):
    folder = new(tmp_path / "run", 1)
    span = Span(Origin.SAMPLED, "a b", 2, (1, 2), (-0.5, bad))
    with folder.journal() as journal, pytest.raises(ValueError, match=r"p1\|asyncthink\|0 cannot be stored.*logprobs"):
        journal.append(episode(1, traces=(Trace("a", "a", None, (span,)),), format_faults=()))
    assert list(folder.episodes()) == [episode(0)]


@pytest.mark.parametrize("bad", [-1, 10**400])
def test_a_bill_that_cannot_be_added_up_is_refused(bad: int):
    billed = Span(Origin.SAMPLED, "a", 1, billed=Billed(5, 0, 1))
    made = episode(traces=(Trace("a", "a", None, (Span(Origin.PROMPT, "b", 1), billed)),), format_faults=())
    line = episode_json.dump(made)
    assert episode_json.load(line) == made
    assert line.count(b'"billed"') == 1, "of spans that nobody reported, nothing is stored"
    with pytest.raises(ValueError, match="is below 0" if bad < 0 else "is not a number from"):
        episode_json.load(line.replace(b'"input":5', f'"input":{bad}'.encode()))


@pytest.mark.parametrize("torn", ["", '{"loss": 3'])
def test_metrics_are_cut_back_to_a_line(tmp_path: Path, torn: str):
    folder = new(tmp_path / "run")
    file = folder.path / "metrics.jsonl"
    file.write_text('{"loss": 1}\n{"loss": 2}\n' + torn)
    with folder.journal() as journal:
        journal.rewind(3)
        assert file.read_text() == '{"loss": 1}\n{"loss": 2}\n'
        journal.rewind(1)
        journal.log(loss=5)
    assert file.read_text() == '{"loss": 1}\n{"loss": 5}\n'


@pytest.mark.parametrize("lost", [[], [3, 4, 5]])
def test_metrics_are_cut_back_to_a_step_when_lines_are_missing(tmp_path: Path, lost: list[int]):
    folder = new(tmp_path / "run")
    file = folder.path / "metrics.jsonl"
    kept = [json.dumps({"step": step}) + "\n" for step in range(1, 11) if step not in lost]
    file.write_text("".join(kept) + '{"step": 11}\n{"step": 12}\n{"step": 11}\n{"st')
    with folder.journal() as journal:
        assert journal.rewind(10) == 3
    assert file.read_text() == "".join(kept)


def test_several_episodes_are_stored_together_or_none_of_them(tmp_path: Path):
    folder = new(tmp_path / "run", 1)
    bad = episode(2, traces=(Trace("a", "a", None, (Span(Origin.SAMPLED, "a", 1, (1,), (float("nan"),)),)),))
    with folder.journal() as journal:
        with pytest.raises(ValueError, match=r"p2\|asyncthink\|0 cannot be stored"):
            journal.append(episode(1), bad)
        assert list(folder.episodes()) == [episode(0)]
        journal.append(episode(1), episode(2))
        journal.append()
    assert list(folder.episodes()) == [episode(0), episode(1), episode(2)]


@pytest.mark.parametrize("tail", [b"", b'{"id": "torn', b"not read\n"])
def test_episodes_are_rewound_to_what_was_there_without_being_read(tmp_path: Path, tail: bytes):
    folder = new(tmp_path / "run", 2)
    with folder.journal() as journal:
        size = journal.size
        journal.append(episode(2))
    with folder.episodes_file.open("ab") as file:
        file.write(tail)
    with folder.journal(redo=None) as journal:
        assert journal.episodes == []
        journal.rewind(0)
        assert folder.episodes_file.read_bytes().endswith(tail), "only those that are named go"
        journal.rewind(0, size)
        journal.append(episode(3))
        journal.rewind(0, 10 * journal.size)
    assert list(folder.episodes()) == [episode(0), episode(1), episode(3)]


def test_half_a_surrogate_pair_does_not_lose_the_episode():
    back = episode_json.load(episode_json.dump(episode(answer="smile \ud83d!")))
    assert back == episode(answer="smile ?!")


def test_the_golden_file_reads_and_writes_back_unchanged():
    """A change of the record that breaks stored files must raise SCHEMA_VERSION."""
    lines = GOLDEN.read_bytes().splitlines(keepends=True)
    assert len(lines) >= 4
    for line in lines:
        assert episode_json.dump(episode_json.load(line)) == line


def test_a_run_keeps_what_was_appended(tmp_path: Path):
    new(tmp_path / "run", 3)
    folder = RunFolder.open(tmp_path / "run")
    assert list(folder.episodes()) == [episode(0), episode(1), episode(2)]
    assert folder.settings("eval", Sampling) == Sampling(5)
    assert {"orgthink", "commit", "versions", "schema_version", "kind"} <= folder.config.keys()


def test_a_torn_last_line_does_not_count_and_is_cut_off(tmp_path: Path):
    folder = new(tmp_path / "run", 2)
    whole = folder.episodes_file.read_bytes()
    for cut in (1, 100, len(episode_json.dump(episode(2))) - 1):
        folder.episodes_file.write_bytes(whole + episode_json.dump(episode(2))[:cut])
        assert len(list(folder.episodes())) == 2
        with folder.journal() as journal:
            assert len(journal.episodes) == 2
            assert folder.episodes_file.read_bytes() == whole
    with folder.journal() as journal:
        journal.append(episode(2))
    assert [e.problem.id for e in folder.episodes()] == ["p0", "p1", "p2"]


@pytest.mark.parametrize(
    "line", [b"{\n", b"\n", b"[]\n", b'{"id": "x"}\n', b"\xff\xfe\n", b"\0" * 50 + b"\n"], ids=repr
)
def test_a_corrupt_line_is_named_and_nothing_is_changed(tmp_path: Path, line: bytes):
    folder = new(tmp_path / "run", 3)
    lines = folder.episodes_file.read_bytes().splitlines(keepends=True)
    damaged = b"".join([lines[0], line, *lines[2:]])
    folder.episodes_file.write_bytes(damaged)
    with pytest.raises(UserError, match=r"episodes\.jsonl, line 2"):
        list(folder.episodes())
    with pytest.raises(UserError, match="line 2"), folder.journal():
        pass
    assert folder.episodes_file.read_bytes() == damaged


def test_an_episode_of_another_version_is_refused(tmp_path: Path):
    folder = new(tmp_path / "run", 1)
    with folder.episodes_file.open("ab") as file:
        file.write(episode_json.dump(episode(1, schema_version=9)))
    with pytest.raises(UserError, match=r"line 2.*version 9"):
        list(folder.episodes())


def test_episodes_to_be_done_again_move_away(tmp_path: Path):
    folder = new(tmp_path / "run", 4)
    with folder.journal(redo=lambda e: e.problem.id in ("p1", "p2")) as journal:
        assert [e.problem.id for e in journal.episodes] == ["p0", "p3"]
        journal.append(episode(1, answer="second try"))
    assert [e.problem.id for e in folder.episodes()] == ["p0", "p3", "p1"]
    moved = [episode_json.load(line) for line in (folder.path / "failed.jsonl").read_bytes().splitlines()]
    assert moved == [episode(1), episode(2)]


def test_temporary_files_of_a_killed_process_are_removed(tmp_path: Path):
    """Not those of commands that write into the folder without its lock: they may be at work."""
    folder = RunFolder.create(tmp_path / "run", "eval", {})
    left, others = [".summary.json.0a.tmp", ".config.json.0b.tmp"], [".view.html.0c.tmp", ".rows.jsonl.0d.tmp"]
    for name in (*left, *others):
        (folder.path / name).touch()
    with folder.journal(redo=None):
        pass
    assert sorted(path.name for path in folder.path.glob(".*.tmp")) == sorted(others)


def test_only_one_process_appends(tmp_path: Path):
    folder = new(tmp_path / "run")
    with folder.journal(), pytest.raises(UserError, match="another process"), folder.journal():
        pass
    with folder.journal():
        pass


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "it has no config.json"),
        ("not json", "cannot be read"),
        ('{"model_type": "qwen3"}', "another program"),
        ("[1]", "no JSON object"),
        (
            '{"orgthink": "9", "schema_version": 9, "kind": "eval", "settings": {}}',
            "version 9: this orgthink reads version 3 only",
        ),
    ],
)
def test_a_foreign_folder_is_refused(tmp_path: Path, content: str | None, message: str):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match=message) as caught:
        RunFolder.open(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_run_is_only_made_where_nothing_is(tmp_path: Path):
    new(tmp_path / "run", 1)
    with pytest.raises(UserError, match="--resume"):
        RunFolder.create(tmp_path / "run", "eval", Sampling(1))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    for overwrite in (False, True):
        with pytest.raises(UserError, match="not empty"):
            RunFolder.create(tmp_path / "mine", "eval", Sampling(1), overwrite=overwrite)
    assert len(list(RunFolder.open(tmp_path / "run").episodes())) == 1
    fresh = RunFolder.create(tmp_path / "run", "eval", Sampling(1), overwrite=True)
    assert list(fresh.episodes()) == []


FULL_DISK = """
import resource, sys
from pathlib import Path
from test_store import RunFolder, episode
folder = RunFolder.open(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
with folder.journal() as journal:
    for number in range(100):
        try:
            journal.append(episode(number))
        except OSError:
            sys.exit(number)
"""


def test_on_a_full_disk_what_was_written_stays_whole(tmp_path: Path):
    folder = new(tmp_path / "run")
    room = int(5.5 * len(episode_json.dump(episode())))
    path = os.pathsep.join((str(HERE), str(HERE.parent)))
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(folder.path), str(room)], env=os.environ | {"PYTHONPATH": path}
    )
    assert done.returncode == 5
    assert folder.episodes_file.read_bytes() == b"".join(episode_json.dump(episode(number)) for number in range(5))
    with folder.journal() as journal:
        journal.append(episode(5))
    assert len(list(folder.episodes())) == 6


def test_runs_of_one_second_have_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a loop over `orgthink.evaluate`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(store.time, "strftime", lambda form: "20261201-120000")
    made = [RunFolder.create(store.dated("math"), "eval", {"n": n}).path.name for n in range(3)]
    assert made == ["math-20261201-120000", "math-20261201-120000-2", "math-20261201-120000-3"]
