"""A new user's first hour: the script runs in a clean copy and an empty environment, at most two commands a step."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from clones import ROOT, clone
from test_wheel import TORCH, Environment

SCRIPT = (ROOT / "examples" / "first_hour.sh").read_text(encoding="utf-8")
STEPS = re.findall(r"^if step (\d+)\. (.+?); then\n(.*?)^fi$", SCRIPT, re.MULTILINE | re.DOTALL)


def test_a_step_is_at_most_two_commands() -> None:
    assert [int(number) for number, _, _ in STEPS] == list(range(1, len(STEPS) + 1))
    assert all(1 <= len(re.findall(r"^  \w", body, re.MULTILINE)) <= 2 for _, _, body in STEPS)


@pytest.mark.parametrize(("argument", "code"), [("--help", 0), ("web", 2)])
def test_the_stand_in_for_a_server_says_how_it_is_called(argument: str, code: int) -> None:
    command = [sys.executable, ROOT / "examples" / "stub_server.py", argument]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    said = done.stdout + done.stderr
    assert done.returncode == code and said.startswith("usage: ") and "Traceback" not in said


def free_port() -> int:
    """A port that is free, as the one behind it is."""
    for _ in range(100):
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = one.getsockname()[1]
            try:
                socket.create_server(("127.0.0.1", port + 1)).close()
                return port
            except OSError:
                continue
    raise AssertionError("no two free ports")


@pytest.mark.wheel
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_first_hour(tmp_path: Path) -> None:
    environment, folder, out = Environment(tmp_path / "env"), clone(tmp_path / "orgthink"), tmp_path / "out"
    environment.install(TORCH)  # a build for CPUs, where pip finds one
    path = f"{tmp_path / 'env' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OPENAI"))}
    clean |= {"PATH": path, "OUT": str(out), "PORT": str(free_port()), "SKIP": "2", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [folder / "examples" / "first_hour.sh"],
        cwd=tmp_path, env=clean, timeout=1800, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    steps = dict(re.findall(r"^== (\d+)\. .*\n((?:(?!== ).*\n)*)", done.stdout, re.MULTILINE))
    assert list(steps) == [number for number, _, _ in STEPS]
    assert re.search(r"^organization +asyncthink +sequential +majority-vote$", steps["3"], re.MULTILINE)
    assert "majority-vote: samples = 3: mean tokens" in steps["3"]
    assert (out / "mine" / "view.html").is_file()
    assert re.search(r"^organization +asyncthink +sequential +majority-vote$", steps["4"], re.MULTILINE), steps["4"]
    assert "<svg" in (out / "plot.svg").read_text(encoding="utf-8")
    page = (out / "first_run.html").read_text(encoding="utf-8")
    assert "episodes [95 % interval]</caption>" in page and "image/png" in page and "Traceback" not in page
    assert re.search(r"^resp\w+ (queued|in_progress)$", steps["6"], re.MULTILINE), steps["6"]
    assert re.search(r"^completed \d+$", steps["6"], re.MULTILINE), steps["6"]
    assert re.search(r"^ +asyncthink/all_correct$", steps["7"], re.MULTILINE), steps["7"]
