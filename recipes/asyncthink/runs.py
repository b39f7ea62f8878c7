"""The trained runs that the tables compare: which there are, whether they are finished, and how to finish them."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orgthink.errors import UserError
from orgthink.store import RunFolder

if TYPE_CHECKING:
    from orgthink.training.recipes import KnownJob

ASYNCTHINK = "asyncthink-countdown-mini"
"""Both stages of AsyncThink: the shipped base has learned the format, reinforcement learning the organization."""
SEQUENTIAL = {f"{ASYNCTHINK}-sequential": 192, f"{ASYNCTHINK}-sequential-long": 480}
"""The baselines by the same reinforcement learning, without forks, and the budget each was trained at, in tokens."""
ABLATIONS = {
    "-concurrency reward": f"{ASYNCTHINK}-no-concurrency",
    "-format SFT": f"{ASYNCTHINK}-no-sft",
    "-RL": "pocket",
}
"""What is taken away, and the run that shows it; `pocket` is the shipped base."""
PLAIN = "pocket-plain"
"""The base that never saw a Fork."""
BASES = {ABLATIONS["-format SFT"]: PLAIN}
"""Runs that start from another trained run, not from the shipped base."""

TRAINED = (PLAIN, ASYNCTHINK, *SEQUENTIAL, *(run for run in ABLATIONS.values() if run != "pocket"))
"""What has to be trained, in an order in which each finds its base."""


def train_missing(runs: Path) -> None:
    """Train every run that is missing, go on with those that are unfinished. UserError if one does not finish."""
    for name in TRAINED:
        run = runs / name
        if not finished(run):
            begun = (run / "config.json").is_file()
            base = ["--model", str(model_folder(runs, BASES[name]))] if name in BASES else []
            _orgthink("train", *(["--resume", str(run)] if begun else [name, *base, "--out", str(run)]))
        if not finished(run):
            raise UserError(f"{run} is not finished: the same command goes on with it")


def finished(run: Path) -> bool:
    """Whether a run has a checkpoint of its last step. UserError if the folder holds something else, or the recipe with
    other settings: its numbers would bear a name that is not theirs."""
    from orgthink.training.recipes import RECIPES

    if not (run / "config.json").is_file():
        return False
    if _decisive(_job(run).settings) != _decisive(RECIPES[run.name].settings):
        raise UserError(f"{run} was trained with other settings than the recipe's: move it away, or train it again")
    return _last(run).is_dir()


def _decisive(settings: Any) -> Any:
    """Without what only stops or saves a run, and changes no number."""
    others = {"drift": 0.0, "save_every": 1}
    return replace(settings, **{name: value for name, value in others.items() if hasattr(settings, name)})


def model_folder(runs: Path, name: str) -> Path:
    """The Hugging Face folder of a finished run's last step; UserError if it is not finished."""
    if not finished(runs / name):
        raise UserError(f"{runs / name} has no checkpoint of its last step: train it first")
    return _last(runs / name) / "model"


def metrics(run: Path) -> list[dict[str, Any]]:
    """The whole lines of a run's metrics.jsonl, one a step; none if there is no such file."""
    file = run / "metrics.jsonl"
    lines = file.read_text().splitlines(keepends=True) if file.is_file() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def described(run: Path) -> dict[str, Any]:
    """Steps, seed and commit of a run, and the seconds its steps took."""
    settings = _job(run).settings
    seconds = sum(_seconds(line["seconds"]) for line in metrics(run))
    commit = RunFolder.open(run).config["commit"]
    return {"steps": settings.steps, "seed": settings.seed, "commit": commit, "training_seconds": round(seconds)}


def fingerprint(model: Path) -> str:
    """Tells weights from other weights: a run that is trained again is another model."""
    digest = hashlib.sha256()
    for file in sorted(model.glob("*.safetensors")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _last(run: Path) -> Path:
    """Where the checkpoint of the last step is, once there is one."""
    return run / "checkpoints" / f"step-{_job(run).steps:06d}"


def _job(run: Path) -> KnownJob:
    """What is trained in a run folder."""
    from orgthink.training.recipes import training_of  # after the threads are set: it imports torch

    return training_of(RunFolder.open(run)).job


def _seconds(taken: float | dict[str, float]) -> float:
    """Of one step, in one number or split by what they went into."""
    return sum(taken.values()) if isinstance(taken, dict) else taken


def _orgthink(*arguments: str) -> None:
    """Run a command to its end. Ctrl-C reaches it too: it saves, and this waits for that."""
    print(f"orgthink {' '.join(arguments)}", flush=True)
    process = subprocess.Popen([sys.executable, "-m", "orgthink", *arguments])
    interrupted = False
    while True:
        try:
            code = process.wait()
            break
        except KeyboardInterrupt:
            interrupted = True
    if interrupted:
        raise KeyboardInterrupt
    if code:
        raise UserError(f"orgthink {' '.join(arguments)} ended with exit code {code}")
