"""Hours of evaluations and trainings that are killed at random and resumed, by a server that misbehaves at random.

    python tests/attacks/soak.py --seconds 7200 --out FOLDER

A round is a run folder: killed and resumed until it is done, then compared with the run that was left alone. A line of
counts is printed after each, and the folders of rounds with a finding stay. The exit code is 1 after a finding.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / place) for place in (".", "engines", "training")]

from attacks.misbehaving import misbehaving  # noqa: E402
from attacks.watched import Watched, adopt_orphans, orphans, rest, temporary, unlocked  # noqa: E402
from loopback import MODEL  # noqa: E402
from small import TASK_OF_SUMS  # noqa: E402
from terse import EXTENDED  # noqa: E402
from tiny_recipes import named  # noqa: E402

from orgthink.record.episode import Episode, StopReason, Trace  # noqa: E402
from orgthink.record.folder import RunFolder  # noqa: E402

TEAMS = {
    "plain": (),
    "inherit": ("worker_context=inherit",),
    "push": ("delivery=push",),
    "persistent": ("workers=persistent",),
    "all": ("worker_context=inherit", "delivery=push", "workers=persistent"),
}
"""Settings of AsyncThink, by label."""
TOOLS = ["standard_reasoner", "critical_reviewer", *(["python"] if shutil.which("bwrap") else [])]
SETTINGS = [f"{label}.{setting}" for label, settings in TEAMS.items() for setting in settings]
ORGANIZATIONS = [*(f"{label}=asyncthink" for label in TEAMS), "verifier-corrector", "paramanager"]
EVALUATION = [
    *("eval", "--task", TASK_OF_SUMS, "--prompts", EXTENDED, "--model", MODEL, "--max-tokens", "80"),
    *("--capacity", "5", "--concurrency", "24", "--organizations", *ORGANIZATIONS),
    *("--set", *SETTINGS, "verifier-corrector.passes=2", f"paramanager.tools={json.dumps(TOOLS)}"),
]
RECIPES = ("ASYNCTHINK", "MARSRL", "SEQUENTIAL")
KINDS = ("eval", "eval", "eval", RECIPES[0], "eval", "eval", "long", *RECIPES[1:])
"""Rounds, again and again."""
SHARE, PATIENCE, MOST = 0.15, 5, 20
"""Share of answers that go wrong; processes of a round that are killed; most processes of a round."""
DEADLINE = 12
"""Seconds of an episode whose server says nothing. The run that is left alone has as many as it needs."""
LONG = 10
"""Times as many problems has a round that is left alone in the middle, to see its memory."""
ENDS = {0, 1, 130, *(-each for each in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT))}
"""Exit codes of a command that was killed, interrupted or has ended; 1 says that an engine failed."""


class Soak:
    """The rounds, and what they showed."""

    def __init__(self, out: Path, url: str, mood: Any, seed: int, problems: int, steps: int) -> None:
        self.out, self.mood, self.rng = out, mood, random.Random(seed)
        self.counts: Counter[str] = Counter()
        """What was done and seen."""
        self.findings: list[str] = []
        """What should not be, a line each."""
        self.memory: dict[str, list[float]] = {}
        """MiB of the long processes: after a quarter of their time, and at most after that."""
        self.problems, self.url = problems, url
        self.training = ["--model", str(out / "model"), "--device", "cpu", "--steps", str(steps)]
        self.whole: dict[str, Any] = {}
        """What a run holds that was left alone, by its name."""

    def play(self, number: int, kind: str) -> None:
        """One round: `eval`, `long`, or a recipe."""
        folder, before = self.out / f"{number}-{kind}", len(self.findings)
        if kind == "long":
            self.alone(folder, self.command("eval", folder, LONG * self.problems), SHARE)
            ids = [episode.id for episode in RunFolder.open(folder).episodes()]
            if len(ids) != len(set(ids)) or len(ids) != LONG * self.problems * len(ORGANIZATIONS):
                self.findings.append(f"{folder}: {len(ids)} episodes, {len(set(ids))} ids")
        else:
            if kind not in self.whole:
                self.alone(whole := self.out / f"whole-{kind}", self.command(kind, whole, deadline=3600), 0.0)
                self.whole[kind] = self.held(whole, kind)
            self.killed(folder, kind)
            self.compare(folder, kind)
        self.findings += [f"{folder}: {file} is left" for file in temporary(folder)]
        self.findings += [] if unlocked(folder) else [f"{folder} is locked"]
        self.counts["rounds", kind] += 1
        if len(self.findings) == before:
            shutil.rmtree(folder)

    def command(self, kind: str, folder: Path, n: int = 0, deadline: int = DEADLINE) -> list[str]:
        """The command that makes a run or goes on with it."""
        if kind != "eval":
            return ["train", named(kind), *self.training, "--set", "save_every=3", "--out", str(folder), "--go-on"]
        if (folder / "config.json").exists():
            return ["eval", "--resume", str(folder)]
        sizes = ["--n", str(n or self.problems), "--deadline", str(deadline)]
        return [*EVALUATION, *sizes, "--url", self.url, "--out", str(folder)]

    def alone(self, folder: Path, command: list[str], share: float) -> None:
        """Run a command to its end."""
        self.mood.share = share
        process = self.run(folder, command, None)
        quarter = len(process.sizes) // 4
        self.memory[folder.name] = [process.sizes[quarter], max(process.sizes[quarter:])]

    def killed(self, folder: Path, kind: str) -> None:
        """Kill a run and go on with it until it has ended; it is left alone after a while, by all."""
        for number in range(MOST):
            patient = number >= PATIENCE
            self.mood.share = 0.0 if patient else SHARE
            process = self.run(folder, self.command(kind, folder), None if patient else self.moment(folder, kind))
            self.counts["resumed"] += number > 0
            if process.code == 0 or (process.code == 1 and kind == "eval" and not _failed(folder)):
                return  # 1 also says that no episode had the time to answer
        self.findings.append(f"{folder}: not done after {MOST} processes")

    def moment(self, folder: Path, kind: str) -> Iterator[bool]:
        """Whether the moment to kill has come, asked again and again: by the clock, or after something was written."""
        file = folder / ("episodes.jsonl" if kind == "eval" else "metrics.jsonl")
        lines, until = _lines(file) + self.rng.randrange(1, 12), time.monotonic() + self.rng.uniform(0.2, 12)
        by_clock, after = self.rng.random() < 0.3, self.rng.uniform(0, 0.5)
        while time.monotonic() < until if by_clock else _lines(file) < lines:
            yield False
        until = time.monotonic() + after
        while time.monotonic() < until:
            yield False
        while True:
            yield True

    def run(self, folder: Path, command: list[str], moment: Iterator[bool] | None) -> Watched:
        """Run a command, and kill it at a moment; a softer signal is followed by others."""
        log, place = folder.with_suffix(".log"), self.out / "tmp"
        place.mkdir(exist_ok=True)
        process = Watched(
            [sys.executable, "-m", "orgthink", *command], log, {"TMPDIR": str(place), "OMP_NUM_THREADS": "1"}
        )
        self.counts["processes"] += 1
        while not process.ended(0.05):
            if moment is not None and next(moment):
                how = self.rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
                process.kill(how)
                self.counts[how.name] += 1
                process.ended(self.rng.choice((0.0, 0.1, 1.0, 10.0)))
        self.findings += [f"{folder}: a process is left: {command}" for command in orphans()]
        for left in place.iterdir():
            if not left.name.startswith("torchinductor_"):  # the cache of all of a user's processes
                self.counts[f"left in TMPDIR by {process.code}: {re.sub('[^a-z].*', '…', left.name)}"] += 1
        shutil.rmtree(place)
        self.judge(process, log)
        return process

    def judge(self, process: Watched, log: Path) -> None:
        """The exit code and the words of a process that has ended."""
        self.counts[f"exit code {process.code}"] += 1
        text = log.read_text(errors="replace")
        stopped = process.code in (1, -signal.SIGINT, 130) and text.rstrip().endswith("KeyboardInterrupt")
        if process.code not in ENDS or ("Traceback" in text and not stopped):
            kept = log.with_suffix(f".{self.counts['processes']}.log")
            shutil.copy(log, kept)
            self.findings.append(f"exit code {process.code}: {text.strip()[-200:]} ({kept})")
        log.unlink()

    def compare(self, folder: Path, kind: str) -> None:
        """What a run holds that was killed, and the one that was not."""
        expected, found = self.whole[kind], self.held(folder, kind)
        if found.keys() != expected.keys():
            self.findings.append(f"{folder}: not the same: {sorted(found.keys() ^ expected.keys())[:5]}")
        for name in expected.keys() & found.keys():
            if found[name] is None:
                self.counts["episodes that went on without an agent, or to a deadline"] += 1
            elif found[name] == expected[name]:
                self.counts["compared", kind] += 1
            else:
                self.findings.append(f"{folder}: {name} is {found[name]}, not {expected[name]}")

    def held(self, folder: Path, kind: str) -> dict[str, Any]:
        """What a run must hold, by name."""
        run = RunFolder.open(folder)
        episodes, _, failed = list(run.episodes()), list(run.metrics()), list(run.failed())  # all can be read
        self.counts["failed episodes"] += len(failed)
        if (folder / "crashes.log").exists():
            self.findings.append(f"{folder} has a crashes.log")
        if kind == "eval":
            return {episode.id: _told(episode) for episode in episodes}
        last = max((folder / "checkpoints").iterdir())
        weights = hashlib.sha256((last / "model" / "model.safetensors").read_bytes()).hexdigest()
        lines = [{name: each for name, each in line.items() if "seconds" not in name} for line in run.metrics()]
        texts = [(episode.id, [trace.text for trace in episode.traces]) for episode in episodes]
        return {"weights": (last.name, weights), "episodes": sorted(texts), "steps": [line["step"] for line in lines]}

    def report(self) -> dict[str, Any]:
        """All counts."""
        names = {name if isinstance(name, str) else " ".join(name): each for name, each in self.counts.items()}
        return {"counts": names, "memory": self.memory, "answers": dict(self.mood.played), "findings": self.findings}


def _failed(folder: Path) -> bool:
    return any(episode.stop is StopReason.ERROR for episode in RunFolder.open(folder).episodes())


def _lines(file: Path) -> int:
    with suppress(OSError):
        return file.read_bytes().count(b"\n")
    return 0


def _told(episode: Episode) -> Any:
    """What an episode says whatever happened to its server; `None` if it lacks an agent, or time."""
    if any(trace.stop in (StopReason.ERROR, StopReason.DEADLINE) for trace in episode.traces):
        return None
    score = None if episode.grade is None else episode.grade.correct
    pushed = episode.organization in ("push", "all")  # the organizer waits where the result is not there yet
    texts = sorted((trace.role, _sampled(trace)) for trace in episode.traces[pushed:])
    return episode.stop, episode.answer, score, texts


def _sampled(trace: Trace) -> str:
    return "".join(span.text for span in trace.spans if span.origin == "sampled")


def write_model(folder: Path) -> None:
    """The model of the trainings, in a process of its own."""
    code = "import sys, tiny_policy as t; from pathlib import Path; t.TINY = Path(sys.argv[1]); t.write_tiny_policy()"
    path = {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    process = Watched([sys.executable, "-c", code, str(folder)], folder.with_suffix(".log"), path)
    while not process.ended(1.0):
        pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("seconds", 7200), ("seed", 0), ("problems", 6), ("steps", 16)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--share", type=float, default=1 / 3, help="of a core that all processes use")
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    parser.add_argument("--out", type=Path, required=True)
    given, began = parser.parse_args(), time.monotonic()
    given.out.mkdir(parents=True, exist_ok=True)
    adopt_orphans()
    if not {*RECIPES}.isdisjoint(given.kinds):
        write_model(given.out / "model")
    with misbehaving(given.seed) as (url, mood):
        soak, number = Soak(given.out, url, mood, given.seed, given.problems, given.steps), 0
        while number == 0 or time.monotonic() < began + given.seconds:
            try:
                soak.play(number, kind := given.kinds[number % len(given.kinds)])
            except Exception as error:  # such as a run that cannot be read
                soak.findings.append(f"{number}-{kind}: {error!r}")
            number += 1
            print(json.dumps({"seconds": int(time.monotonic() - began), **soak.report()}), flush=True)
            rest(began, given.share)
    return int(bool(soak.findings))


if __name__ == "__main__":
    sys.exit(main())
