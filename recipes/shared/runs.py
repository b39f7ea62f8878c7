"""The trained runs that tables compare: whether they are finished, how to finish them, and what they were.

A run folder is called by its recipe, or RECIPE-seedN for a training with another seed.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orgthink.errors import UserError
from orgthink.store import RunFolder

if TYPE_CHECKING:
    from orgthink.training.recipes import KnownJob

SEED = "-seed"
"""Between the name of a recipe and the seed of a training."""


def train_missing(runs: Path, names: Iterable[str], bases: Mapping[str, str] | None = None) -> None:
    """Train every run that is missing, go on with those that are unfinished. UserError if one does not finish.

    `bases` are runs to start from, where that is not the recipe's own model.
    """
    for name in names:
        run = runs / name
        if not finished(run):
            begun = (run / "config.json").is_file()
            _orgthink("train", *(["--resume", str(run)] if begun else _begin(runs, name, bases or {})))
        if not finished(run):
            raise UserError(f"{run} is not finished: the same command goes on with it")


def _begin(runs: Path, name: str, bases: Mapping[str, str]) -> list[str]:
    recipe, seed = recipe_of(name)
    base = ["--model", str(model_folder(runs, bases[name]))] if name in bases else []
    return [recipe, *base, *([] if seed is None else ["--seed", str(seed)]), "--out", str(runs / name)]


def recipe_of(name: str) -> tuple[str, int | None]:
    """The recipe that a run is called by, and the seed; `None`: the recipe's own."""
    recipe, found, seed = name.partition(SEED)
    return recipe, int(seed) if found else None


def finished(run: Path) -> bool:
    """Whether a run has a checkpoint of its last step. UserError if the folder holds something else, or the recipe with
    other settings: its numbers would bear a name that is not theirs."""
    from orgthink.training.recipes import RECIPES

    if not (run / "config.json").is_file():
        return False
    recipe, seed = recipe_of(run.name)
    wanted = RECIPES[recipe].settings
    if _decisive(_job(run).settings) != _decisive(wanted if seed is None else replace(wanted, seed=seed)):
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
