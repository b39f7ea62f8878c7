"""The soak and the siege for a moment each: they run for hours before a release (`python tests/attacks/soak.py`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("mcp")

from attacks.soak import Soak
from attacks.watched import temporary, unlocked

from orgthink.record.episode import Episode
from orgthink.record.folder import RunFolder

pytestmark = pytest.mark.thorough


def played(program: str, folder: Path, *options: str) -> dict[str, Any]:
    """The last report of a program that found nothing."""
    command = [sys.executable, Path(__file__).with_name(program), "--out", folder, *options]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    return json.loads(ended.stdout.splitlines()[-1])


def test_an_evaluation_that_is_killed_again_and_again(tmp_path: Path) -> None:
    options = ("--kinds", "eval", "--problems", "2", "--seconds", "1", "--share", "8", "--seed", "3")
    counts = played("soak.py", tmp_path / "soak", *options)["counts"]
    assert counts["rounds eval"] == 1 and counts["resumed"] > 0 and counts["compared eval"] > 0


def test_servers_that_are_besieged(tmp_path: Path) -> None:
    report = played("siege.py", tmp_path / "siege", "--seconds", "10", "--clients", "24", "--pause", "0.5")
    kinds = {"background", "cancel", "chat", "dropper", "loris", "malformed", "response", "stranger", "tool"}
    assert kinds <= report["counts"].keys() and report["right answers"] > 20


GOLDEN = Path(__file__).parents[1] / "golden" / "episodes.jsonl"


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lambda whole: whole, None),
        (lambda whole: whole[1:], "not the same"),
        (lambda whole: [replace(whole[0], answer="another"), *whole[1:]], "'another'"),
        (lambda whole: [replace(whole[0], id="another"), *whole], "not the same"),
    ],
    ids=["the same", "lost", "another answer", "one more"],
)
def test_a_soak_finds_what_differs(
    change: Callable[[list[Episode]], list[Episode]], finding: str | None, tmp_path: Path
) -> None:
    golden = RunFolder.create(tmp_path / "golden", "eval", {})
    golden.episodes_file.write_bytes(GOLDEN.read_bytes())
    whole = [each for each in golden.episodes() if not any(trace.error for trace in each.traces)]
    soak = Soak(tmp_path, "", None, 0, 1, 1)
    for name, episodes in (("whole", whole), ("killed", change(whole))):
        with RunFolder.create(tmp_path / name, "eval", {}).journal() as journal:
            journal.append(*episodes)
    soak.whole["eval"] = soak.held(tmp_path / "whole", "eval")
    soak.compare(tmp_path / "killed", "eval")
    assert [finding in each for each in soak.findings] == [True] if finding else not soak.findings
    assert soak.counts["compared", "eval"] >= len(whole) - 1


def test_locks_and_temporary_files_are_found(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "eval", {})
    assert unlocked(folder.path) and not temporary(folder.path)
    with folder.journal():
        assert not unlocked(folder.path)
    (folder.path / ".summary.json.0a.tmp").touch()
    assert len(temporary(folder.path)) == 1


def test_a_process_that_outlives_its_parent_is_found() -> None:
    code = "from attacks import watched as w; w.LAST = 0.5; w.adopt_orphans(); import subprocess as s"
    code += "; s.run(['sh', '-c', 'sleep 600 >/dev/null 2>&1 &']); found = w.orphans(); print(len(found), found[0][:9])"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert ended.stdout == "1 sleep 600\n", ended.stderr
