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
    from orgthink.recipes.jobs import Job

SEED = "-seed"
"""Between the name of a recipe and the seed of a training."""


def train_missing(
    runs: Path,
    names: Iterable[str],
    bases: Mapping[str, str] | None = None,
    episodes: Mapping[str, str] | None = None,
) -> None:
    """Train every run that is missing, go on with those that are unfinished. UserError if one does not finish.

    `bases` are runs to start from, where that is not the recipe's own model; `episodes` are run folders of
    trajectories to learn from, where a recipe leaves that open.
    """
    for name in names:
        run, base, learned = runs / name, (bases or {}).get(name), (episodes or {}).get(name)
        if not finished(run, base, learned):
            begun = (run / "config.json").is_file()
            run_orgthink("train", *(["--resume", str(run)] if begun else _begin(runs, name, base, learned)))
        if not finished(run, base, learned):
            raise UserError(f"{run} is not finished: the same command goes on with it")


def _begin(runs: Path, name: str, base: str | None, episodes: str | None) -> list[str]:
    recipe, seed = recipe_of(name)
    model = [] if base is None else ["--model", str(model_folder(runs, base))]
    learned = [] if episodes is None else ["--episodes", str(runs / episodes)]
    return [recipe, *model, *learned, *([] if seed is None else ["--seed", str(seed)]), "--out", str(runs / name)]


def recipe_of(name: str) -> tuple[str, int | None]:
    """The recipe that a run is called by, and the seed; `None`: the recipe's own."""
    recipe, found, seed = name.partition(SEED)
    return recipe, int(seed) if found else None


def finished(run: Path, base: str | None = None, episodes: str | None = None) -> bool:
    """Whether a run has a checkpoint of its last step. UserError if the folder holds something else, or the recipe from
    another model or with other settings: its numbers would bear a name that is not theirs.

    `base` is the run to start from and `episodes` the run folder to learn from, for a recipe without a model or
    trajectories of its own; not given, they may be any.
    """
    from orgthink.recipes.registry import RECIPES

    if not (run / "config.json").is_file():
        return False
    recipe, seed = recipe_of(run.name)
    job, wanted = _job(run), RECIPES[recipe]
    model = getattr(job, "model", None)
    if base is not None and not is_last(Path(model or ""), base):
        raise UserError(f"{run} was trained from {model}, not from {base}: move it away, or train it again")
    learned = getattr(job, "episodes", None)
    if episodes is not None and Path(learned or "").name != episodes:
        raise UserError(f"{run} was trained on {learned}, not on {episodes}: move it away, or train it again")
    for name, given in (("model", model), ("episodes", learned)):
        if hasattr(wanted, name) and getattr(wanted, name) is None:
            wanted = replace(wanted, **{name: given})
    if seed is not None:
        wanted = replace(wanted, settings=replace(wanted.settings, seed=seed))
    if _decisive(job) != _decisive(wanted):
        raise UserError(f"{run} was trained otherwise than the recipe says: move it away, or train it again")
    return _last(run).is_dir()


def _decisive(job: Any) -> Any:
    """Without what only places, stops or saves a run, and changes no number."""
    others = {"drift": 0.0, "save_every": 1}
    known = {name: value for name, value in others.items() if hasattr(job.settings, name)}
    return replace(job, device="auto", settings=replace(job.settings, **known))


def is_last(model: Path, name: str) -> bool:
    """Whether this is the last model of a run of that name, wherever the runs lay when it was used."""
    from orgthink.recipes.registry import RECIPES

    steps = RECIPES[recipe_of(name)[0]].steps
    return model.parts[-4:] == (name, *_checkpoint(steps).parts, "model")


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
    """Steps, seed and commit of a run, what it was trained on, and the seconds its steps took."""
    settings = _job(run).settings
    seconds = sum(_seconds(line["seconds"]) for line in metrics(run))
    return {
        "steps": settings.steps,
        "seed": settings.seed,
        "commit": RunFolder.open(run).config["commit"],
        "trained_tokens": trained_tokens(run),
        "training_seconds": round(seconds),
    }


def trained_tokens(run: Path) -> int:
    """Tokens that a run learned from, over all its steps."""
    return sum(line["trained_tokens"] for line in metrics(run))


def fingerprint(model: Path) -> str:
    """Tells weights from other weights: a run that is trained again is another model."""
    digest = hashlib.sha256()
    for file in sorted(model.glob("*.safetensors")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _last(run: Path) -> Path:
    """Where the checkpoint of the last step is, once there is one."""
    return run / _checkpoint(_job(run).steps)


def _checkpoint(step: int) -> Path:
    """Where a run keeps that of a step."""
    return Path("checkpoints", f"step-{step:06d}")


def _job(run: Path) -> Job:
    """What is trained in a run folder."""
    from orgthink.recipes.registry import training_of  # after the threads are set: it imports torch

    return training_of(RunFolder.open(run)).job


def _seconds(taken: float | dict[str, float]) -> float:
    """Of one step, in one number or split by what they went into."""
    return sum(taken.values()) if isinstance(taken, dict) else taken


def run_orgthink(*arguments: str) -> None:
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
