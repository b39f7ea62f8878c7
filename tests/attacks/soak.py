"""Hours of evaluations against a server that misbehaves, killed at random and resumed until they are done.

    python tests/attacks/soak.py --minutes 120 --out FOLDER

Each round is a fresh run folder. `FOLDER/rounds.jsonl` gets a line a round: episodes that are lost, doubled or without
a status, tracebacks, and the most memory and descriptors of any process of `orgthink eval`. The last line is the
verdict, which is also the exit code: 0 if nothing was lost and no process was larger than it may be.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from attacks.misbehaving import MODEL, Misbehaving  # noqa: E402
from small import TASK  # noqa: E402
from terse import TERSE  # noqa: E402

ORGANIZATIONS = ("sequential", "parallel", "asyncthink")
PROBLEMS, SAMPLES, LARGE = 10, 2, 60
"""Problems of a round, attempts at each, and problems of a round without kills, which shows what grows."""
QUIET_EVERY = 4
"""Every so many rounds nobody is killed."""
PATIENCE = 12
"""Attempts after which the server behaves and nobody is killed, so that a round ends."""
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
RSS_MB, DESCRIPTORS = 600, 160
"""Bounds of a process: more is a leak."""


@dataclass
class Round:
    """What a round showed."""

    number: int
    """From 1."""
    planned: int
    """Episodes that were asked for."""
    killed: bool
    """Whether processes were killed."""
    attempts: int = 0
    """Processes of `orgthink eval`."""
    signals: Counter[str] = field(default_factory=Counter)
    """How the killed ones were killed."""
    codes: Counter[int] = field(default_factory=Counter)
    """Exit codes."""
    lost: int = 0
    """Episodes that are missing at the end, or that had ended well and were gone later."""
    doubled: int = 0
    """Lines whose episode has another line."""
    statusless: int = 0
    """Episodes, or agents of one, that do not say why they stopped."""
    tracebacks: list[str] = field(default_factory=list)
    """Last lines of processes that ended with a traceback or refused their own folder."""
    rss_mb: float = 0.0
    """Most memory of a process, in MiB."""
    growth_mb: float = 0.0
    """Memory at the end of the longest process, less than that after its first quarter, in MiB."""
    descriptors: int = 0
    """Most open descriptors of a process."""
    seconds: float = 0.0
    """Duration of the round."""

    @property
    def holds(self) -> bool:
        """Whether nothing is lost, and no process was larger than it may be."""
        faults = self.lost + self.doubled + self.statusless + len(self.tracebacks)
        return faults == 0 and self.rss_mb <= RSS_MB and self.descriptors <= DESCRIPTORS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    ends, rounds = time.monotonic() + 60 * given.minutes, list[Round]()
    with Misbehaving(given.seed) as server, (given.out / "rounds.jsonl").open("a") as lines:
        rng = random.Random(given.seed)
        while time.monotonic() < ends:
            rounds.append(play(len(rounds) + 1, given.out, server, rng))
            print(json.dumps(line := vars(rounds[-1]) | {"holds": rounds[-1].holds}), file=lines, flush=True)
            print(line, flush=True)
        verdict = judged(rounds) | {"ways": dict(server.played)}
        print(json.dumps(verdict), file=lines, flush=True)
        print(verdict, flush=True)
    return 0 if verdict["holds"] else 1


def play(number: int, out: Path, server: Misbehaving, rng: random.Random) -> Round:
    """One round: a fresh folder, until its evaluation is done. Folders of rounds that hold are removed."""
    began, folder, quiet = time.monotonic(), out / f"round-{number}", number % QUIET_EVERY == 0
    n = LARGE if quiet else PROBLEMS
    found = Round(number, n * SAMPLES * len(ORGANIZATIONS), killed=not quiet)
    well: set[str] = set()
    server.share, code = 0.3, None
    while code != 0 and found.attempts < 3 * PATIENCE:
        patient = found.attempts >= PATIENCE
        server.share = 0.0 if patient else server.share
        code = attempt(found, folder, n, server.url, None if quiet or patient else rng)
        lines = records(folder)
        found.lost += len(well - (well := {record["id"] for record in lines if not failed(record)}))
    count(found, lines)
    found.seconds = round(time.monotonic() - began, 1)
    if found.holds:
        shutil.rmtree(folder)
    return found


def attempt(found: Round, folder: Path, n: int, url: str, rng: random.Random | None) -> int:
    """Run the evaluation, or go on with it; with `rng` it is killed after a while. Returns its exit code."""
    found.attempts += 1
    argv = ["--resume", str(folder)]
    if not (folder / "config.json").exists():
        sizes = [
            "--n",
            str(n),
            "--samples",
            str(SAMPLES),
            "--concurrency",
            "16",
            "--deadline",
            "3",
            "--max-tokens",
            "64",
        ]
        names = ["--task", TASK, "--prompts", TERSE, "--model", MODEL, "--url", url, "--organizations", *ORGANIZATIONS]
        argv = [*names, *sizes, "--out", str(folder)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    log = folder.with_suffix(".log")
    with log.open("wb") as output:
        command = [sys.executable, "-m", "orgthink", "eval", *argv]
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        signals = watched(process, found, rng)
    found.codes[process.returncode] += 1
    text = log.read_text(errors="replace")
    last = text.strip().rpartition("\n")[2]
    stopped = signals and last.strip() == "KeyboardInterrupt"  # Ctrl-C while Python starts
    if ("Traceback (most" in text and not stopped) or process.returncode == 2:
        found.tracebacks.append(last[:300])
        log.rename(folder.with_suffix(f".{found.attempts}.log"))
    log.unlink(missing_ok=True)
    return process.returncode


def watched(process: subprocess.Popen[bytes], found: Round, rng: random.Random | None) -> list[str]:
    """Wait for a process and measure it; with `rng` kill it after a while. Returns the signals that it got."""
    place, began, sizes = Path(f"/proc/{process.pid}"), time.monotonic(), list[float]()
    until = None if rng is None else began + rng.uniform(0.5, 8.0)
    signals: list[str] = []
    while process.poll() is None:
        with suppress(OSError, IndexError):
            sizes.append(int((place / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20)
            found.descriptors = max(found.descriptors, len(list((place / "fd").iterdir())))
        if rng is not None and until is not None and time.monotonic() > until:
            how = rng.choice(SIGNALS)
            process.send_signal(how)
            signals.append(how.name)
            found.signals[how.name] += 1
            until += rng.uniform(0.0, 4.0)  # the second Ctrl-C may follow at once
        time.sleep(0.1)
    found.rss_mb = round(max([found.rss_mb, *sizes]), 1)
    if len(sizes) > 100 and not signals:
        found.growth_mb = round(sizes[-2] - sizes[len(sizes) // 4], 1)
    return signals


def records(folder: Path) -> list[dict[str, Any]]:
    """The whole lines of episodes.jsonl, read without any of the code that is tried."""
    file = folder / "episodes.jsonl"
    raw = file.read_bytes() if file.exists() else b""
    return [json.loads(line) for line in raw.splitlines(keepends=True) if line.endswith(b"\n")]


def failed(record: dict[str, Any]) -> bool:
    """Whether an episode may be run again: an engine failed one of its agents."""
    return "error" in (record.get("stop"), *(trace.get("stop") for trace in record["traces"]))


def count(found: Round, lines: list[dict[str, Any]]) -> None:
    """What the folder shows at the end."""
    names = {record["id"] for record in lines}
    found.lost += found.planned - len(names)
    found.doubled += len(lines) - len(names)
    found.statusless += sum(not record.get("stop") for record in lines)
    found.statusless += sum(not (t.get("stop") and t.get("status")) for record in lines for t in record["traces"])


def judged(rounds: list[Round]) -> dict[str, Any]:
    """The verdict on all rounds."""
    return {
        "holds": bool(rounds) and all(one.holds for one in rounds),
        "rounds": len(rounds),
        "episodes": sum(one.planned for one in rounds),
        "processes": sum(one.attempts for one in rounds),
        "signals": sum((one.signals for one in rounds), Counter()),
        **{name: sum(getattr(one, name) for one in rounds) for name in ("lost", "doubled", "statusless")},
        "tracebacks": [line for one in rounds for line in one.tracebacks][:20],
        "rss_mb": max((one.rss_mb for one in rounds), default=0.0),
        "growth_mb": max((one.growth_mb for one in rounds), default=0.0),
        "descriptors": max((one.descriptors for one in rounds), default=0),
    }


if __name__ == "__main__":
    sys.exit(main())
