"""What is around a process: its terminal, its limits, its folders, and the signals that it gets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attacks.catalogue import Attack, each
from attacks.serving import serving
from loopback import MODEL, Play, hangs, says

FINE = says("so <ANSWER> 3 </ANSWER>")
STORED = "What was computed is on disk, and a resume goes on from there, whatever became of the process."


def command(out: Path, url: str) -> list[str]:
    what = ["--url", url, "--model", MODEL, "--task", "countdown", "--organizations", "sequential", "--n", "4"]
    return [sys.executable, "-m", "orgthink", "eval", *what, "--concurrency", "1", "--out", str(out)]


def around(**changes: str | None) -> dict[str, str]:
    """The environment of this process, without keys and with these changes."""
    kept = {name: value for name, value in os.environ.items() if "KEY" not in name} | changes
    return {name: value for name, value in kept.items() if value is not None}


def ids(out: Path) -> list[str]:
    file = out / "episodes.jsonl"
    whole = [line for line in file.read_bytes().splitlines(True) if line.endswith(b"\n")] if file.exists() else []
    return [json.loads(line)["id"] for line in whole]


def resumed(out: Path, *plays: Play) -> list[str]:
    """Ids of the episodes after a resume, which names the run's server anew."""
    with serving(*plays) as server:
        config = out / "config.json"
        old = json.loads(config.read_text())["settings"]["engine"]["url"]
        config.write_text(config.read_text().replace(old, server.url))
        done = subprocess.run(
            [sys.executable, "-m", "orgthink", "eval", "--resume", str(out)], env=around(), capture_output=True
        )
    assert done.returncode == 0, done.stderr
    return ids(out)


@each(
    *(
        Attack(f"the signal {name[3:]} in the middle of a run", STORED, "a resume has every episode once", [name])
        for name in ("SIGHUP", "SIGQUIT", "SIGUSR1", "SIGALRM", "SIGXCPU")
    ),
    Attack("the signal TERM twice", STORED, "a resume has every episode once", ["SIGTERM", "SIGTERM"]),
    Attack("Ctrl-C twice", STORED, "exit code 130; a resume has every episode once", ["SIGINT", "SIGINT"]),
)
def test_a_signal(attack: Attack, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with serving(FINE, FINE, *[hangs()] * 3) as server:
        run = subprocess.Popen(
            command(out, server.url),
            env=around(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=hears_the_terminal,
        )
        waits(lambda: len(ids(out)) == 2 and len(server.exchanges) == 3)
        for name in attack.given:
            run.send_signal(getattr(signal, name))
            time.sleep(0.3)  # signals of one kind that are sent at once are one
        said, _ = run.communicate(timeout=60)
    assert b"Traceback" not in said and run.returncode == (130 if "SIGINT" in attack.given else -signal.Signals[name])
    found = resumed(out, FINE, FINE)
    assert len(found) == len(set(found)) == 4


def hears_the_terminal() -> None:
    """Also where these tests run in the background, which does not."""
    for name in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(name, signal.SIG_DFL)


def waits(until: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not until():
        assert time.monotonic() < end
        time.sleep(0.05)
