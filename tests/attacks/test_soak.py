"""The soak and the siege for a moment each: they run for hours before a release (`python tests/attacks/soak.py`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("mcp")

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
