"""This version and commit a46cad4 side by side: episodes that run alone, and steps of training.

Both run with the packages that are installed here. The former version is checked out in a temporary folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.report import Line

COMMIT = "a46cad4"
ROOT = Path(__file__).parents[1]
REPEATS = 3
"""Number of runs of each version. They alternate, and the best run counts."""
THREADS = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY")
"""Set for rollouts, which spare a core. `orgthink train` of either version takes all cores, unless they are set."""
STEPS = 2
TRAININGS = {"paramanager-pocket": 3.0, "asyncthink-pocket": 1.5}
"""Recipes, and how many times as fast their steps are to be."""


class Version(NamedTuple):
    """A version of the project."""

    root: Path
    models: Path
    """Folder of the shipped models, which have not changed."""

    def run(self, *arguments: str | Path, unset: Sequence[str] = ()) -> str:
        """What a Python process of this version prints, without these variables of this one's environment."""
        path = os.pathsep.join(map(str, (self.root, self.root / "pocket")))
        env = {name: value for name, value in os.environ.items() if name not in unset}
        command = [sys.executable, *map(str, arguments)]
        done = subprocess.run(
            command, cwd=self.root, env=env | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
        return done.stdout


def run() -> Iterator[Line]:
    try:
        _git("cat-file", "-e", f"{COMMIT}^{{commit}}")
    except subprocess.CalledProcessError:
        print(f"commit {COMMIT} is not in this clone: nothing to compare with\n", flush=True)
        return
    with _former() as former:
        ours = Version(ROOT, ROOT / "pocket" / "orgthink_pocket" / "models")
        yield from _alone(former, ours)
        yield from _trainings(former, ours)


@contextmanager
def _former() -> Iterator[Version]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "former"
        _git("worktree", "add", "--detach", str(place), COMMIT)
        try:
            yield Version(place, place / "orgthink" / "models")
        finally:
            _git("worktree", "remove", "--force", str(place))


def _git(*arguments: str) -> None:
    subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=True)


def _alone(former: Version, ours: Version) -> Iterator[Line]:
    """Tokens a second of one episode at a time."""
    script = Path(__file__).with_name("one_episode.py")
    for organization, model in (("sequential", "pocket-base"), ("asyncthink", "pocket-organizer")):
        rates: dict[Version, list[float]] = {former: [], ours: []}
        for _ in range(REPEATS):
            for version, found in rates.items():
                line = json.loads(version.run(script, version.models / model, organization).splitlines()[-1])
                found.append(line["tokens"] / line["seconds"])
        before, now = max(rates[former]), max(rates[ours])
        yield Line(
            f"one episode alone ÷ commit {COMMIT}, {organization}",
            now / before,
            "≥ 8",
            now >= 8 * before,
            f"{model}, countdown-mini, 8 problems one after another; {now:,.0f} and {before:,.0f} tokens/s",
        )


def _trainings(former: Version, ours: Version) -> Iterator[Line]:
    """Seconds of a step, all of it: rollout, training and the update of the sampler."""
    for recipe, goal in TRAININGS.items():
        before, now = _steps(former, recipe), _steps(ours, recipe)
        seconds = sum(before), sum(now)
        yield Line(
            f"steps of {recipe}, speed ÷ commit {COMMIT}",
            seconds[0] / seconds[1],
            f"≥ {goal}",
            seconds[0] >= goal * seconds[1],
            f"the first {STEPS} steps; {seconds[1]:.0f} and {seconds[0]:.0f} s",
        )


def _steps(version: Version, recipe: str) -> Sequence[float]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        version.run("-m", "orgthink", "train", recipe, "--set", f"steps={STEPS}", "--out", out, unset=THREADS)
        lines = (out / "metrics.jsonl").read_text().splitlines()
    return [sum(json.loads(line)["seconds"].values()) for line in lines]
