"""Preparations in processes of their own: the same results, stopped together, and none outlives what started it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from contestants import HERE, arena_file
from orgthink_arena.contest.config import Arena, Method, Preparation, read_arena
from orgthink_arena.contest.preparing import Prepared
from orgthink_arena.contest.side_by_side import prepare_all

from orgthink.cli import main
from orgthink.util.files import locked

STEPS, PAUSE = 60, 0.05
SEEDS = (0, 1, 2, 3)
GUESS = f"{HERE}:GUESS"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is started finds what these tests import."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(HERE).parent), *sys.path]))


def searches(folder: Path, **preparations: Preparation) -> Arena:
    methods = {"asking": Method("sequential", prepared={f"roles.{name}": name for name in preparations})}
    return replace(read_arena(arena_file(folder)), methods=methods, preparations=preparations)


def test_they_run_at_once_and_make_what_they_make_in_turn(tmp_path: Path) -> None:
    arena = searches(
        tmp_path,
        first=Preparation(GUESS, {"alone": False}),
        once=Preparation(GUESS, {"pause": 0.5}, seeded=False),
        second=Preparation(GUESS, {"steps": 1}, after="once"),
        hopeless=Preparation(GUESS, {"fails": True}),
    )
    found = prepare_all(tmp_path, arena, arena.methods, side_by_side=2)
    assert found == prepare_all(tmp_path, arena, arena.methods), "nothing is done again, and the failure is the same"
    once = found["once", 0]
    assert isinstance(once, Prepared) and once.spent.sampled_tokens == 200, (
        "before both that come after it, not in both"
    )
    assert found["hopeless", 1] == "nothing to be found" and found["once", 0] == found["once", 1]
    assert sorted(json.loads(file.read_text()) for file in tmp_path.glob("preparations/*/memory.json")) == [
        *([0], [0, 0], [0, 0]),
        *([1], [1, 1]),
    ]


@pytest.fixture
def slow(tmp_path: Path) -> tuple[subprocess.Popen[str], Path]:
    """A command that has begun two searches, and its folder."""
    settings = {"steps": STEPS, "pause": PAUSE, "alone": False}  # none is through before the other has begun
    config = arena_file(tmp_path, seeds=SEEDS, preparations={"guess": {"recipe": GUESS, "settings": settings}})
    out = tmp_path / "out"
    command = [sys.executable, "-m", "orgthink", "arena", str(config), "--out", str(out), "--side-by-side", "2"]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while len(memories(out)) < 2:
        assert process.poll() is None
        time.sleep(0.01)
    return process, out


def memories(out: Path) -> list[int]:
    """Numbers of steps of the searches that have begun."""
    return [len(json.loads(file.read_text())) for file in out.glob("preparations/*/memory.json")]


def test_ctrl_c_stops_all_and_says_how_to_go_on(slow: tuple[subprocess.Popen[str], Path]) -> None:
    process, out = slow
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, err = process.communicate()
    assert process.returncode == 130 and f"go on with: orgthink arena --resume {out}" in err
    assert "Traceback" not in err
    assert len(list(out.glob("preparations/*/stopped between steps"))) == 2
    with locked(out):
        assert len(memories(out)) == 2 and max(memories(out)) < STEPS, "those that wait do not begin"
    assert main(["arena", "--resume", str(out), "--side-by-side", "2"]) == 0
    assert memories(out) == [STEPS] * len(SEEDS)


def test_after_a_kill_no_search_goes_on(slow: tuple[subprocess.Popen[str], Path]) -> None:
    process, out = slow
    process.kill()
    process.wait()
    before, now = [], memories(out)
    while before != now:
        time.sleep(20 * PAUSE)
        before, now = now, memories(out)
    assert max(now) < STEPS


def test_a_killed_search_ends_the_command_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    preparations = {"guess": {"recipe": GUESS, "settings": {"killed": True}}}
    config, out = arena_file(tmp_path, preparations=preparations), tmp_path / "out"
    assert main(["arena", str(config), "--out", str(out), "--side-by-side", "2"]) == 2
    assert "perhaps for want of memory: go on with a smaller --side-by-side" in capsys.readouterr().err


def test_none_at_once_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["arena", str(arena_file(tmp_path)), "--side-by-side", "0"]) == 2
    assert "--side-by-side is 0: it must be at least 1" in capsys.readouterr().err
