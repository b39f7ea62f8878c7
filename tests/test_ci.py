"""`.ci/run` has two lanes: either one that fails fails the whole, and no process is left."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

RUN = Path(__file__).parent.parent / ".ci" / "run"
MAKE = """#!/usr/bin/env bash
echo "$@" >> "$CALLS"
for target; do
  if [[ $target == "${FAILS:-}" ]]; then
    while [[ -n ${LASTS:-} && ! -s $CALLS.lasting ]]; do sleep 0.05; done
    exit 3
  fi
  [[ $target == "${LASTS:-}" ]] && { echo $$ > "$CALLS.lasting"; exec sleep 300; }
done
exit 0
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `make` is asked for: a program of this name stands in for it."""
    (tmp_path / "make").write_text(MAKE)
    (tmp_path / "make").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


def started() -> subprocess.Popen[str]:
    return subprocess.Popen([RUN], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)


def has_ended(process: int) -> bool:
    """Whether it ends. Where nobody asks for its exit code, it stays a zombie."""
    stat = Path(f"/proc/{process}/stat")
    for _ in range(600):
        try:
            os.kill(process, 0)
            if stat.is_file() and stat.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False


def lasting(calls: Path) -> int:
    """The process of the target that does not end."""
    file = calls.with_name("calls.lasting")
    for _ in range(600):
        if file.is_file() and file.read_text().strip():
            return int(file.read_text())
        time.sleep(0.05)
    raise AssertionError("the target has not begun")


def test_all_targets_run_and_say_their_seconds(calls: Path) -> None:
    process = started()
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    asked = calls.read_text().split()
    assert {"setup", "smollm2", "check", "docs", "test", "test-wheel", "test-isa", "test-vllm", "test-verl"} <= {*asked}
    assert all(f"{target} " in out.splitlines()[-1] for target in asked if target.startswith("test"))


@pytest.mark.parametrize(("fails", "lasts"), [("test", "test-verl"), ("check", "vllm")])
def test_a_failure_in_the_first_lane_ends_the_other_one(calls: Path, monkeypatch, fails: str, lasts: str) -> None:
    monkeypatch.setenv("LASTS", lasts)
    monkeypatch.setenv("FAILS", fails)
    process = started()
    other = lasting(calls)
    process.communicate(timeout=60)
    assert process.returncode != 0 and has_ended(other)


def test_a_failure_in_the_second_lane_fails_the_whole(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAILS", "test-vllm")
    process = started()
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert "test-core" in calls.read_text().split()


def test_a_run_that_is_ended_leaves_no_lane(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LASTS", "test-vllm")
    process = started()
    other = lasting(calls)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert has_ended(other)
