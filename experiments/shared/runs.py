"""The trained runs that tables compare: check that they are finished, train them, and read their settings and metrics.

The name of a run folder is its recipe, or RECIPE-seedN for a training with another seed.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orgthink.errors import UserError
from orgthink.store import RunFolder
from orgthink.threads import cores

if TYPE_CHECKING:
    from orgthink.recipes.jobs import Job

SIDE_BY_SIDE = 2
"""Number of trainings that run at once, each with its share of the cores."""
SEED = "-seed"
"""Separator between the name of a recipe and the seed in the name of a run."""


def train_missing(
    runs: Path,
    names: Iterable[str],
    bases: Mapping[str, str] | None = None,
    episodes: Mapping[str, str] | None = None,
) -> None:
    """Train all missing runs, and continue unfinished ones, `SIDE_BY_SIDE` at once. UserError if one does not finish.

    `bases`: run → run to start from instead of the recipe's own model; if it is among the names it comes first.
    `episodes`: run → run folder of trajectories to train on, for recipes that leave it open.
    """
    wanted, bases, episodes = dict.fromkeys(names), bases or {}, episodes or {}
    order = TopologicalSorter({name: {bases[name]} & wanted.keys() if name in bases else () for name in wanted})
    order.prepare()
    running: dict[Future[None], str] = {}
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        try:
            while order.is_active():
                for name in order.get_ready():
                    running[pool.submit(_train, runs, name, bases.get(name), episodes.get(name))] = name
                for one in wait(running, return_when=FIRST_COMPLETED).done:
                    one.result()
                    order.done(running.pop(one))
        except BaseException:  # Ctrl-C too, which reaches the trainings themselves: no other one begins
            pool.shutdown(cancel_futures=True)
            raise


def _train(runs: Path, name: str, base: str | None, learned: str | None) -> None:
    """Train a run, unless it is finished."""
    run = runs / name
    if finished(run, base, learned):
        return
    begun = (run / "config.json").is_file()
    run_orgthink("train", *(["--resume", str(run)] if begun else _begin(runs, name, base, learned)))
    if not finished(run, base, learned):
        raise UserError(f"{run} is not finished: the same command continues it")


def _begin(runs: Path, name: str, base: str | None, episodes: str | None) -> list[str]:
    recipe, seed = recipe_of(name)
    model = [] if base is None else ["--model", str(model_folder(runs, base))]
    learned = [] if episodes is None else ["--episodes", str(runs / episodes)]
    return [recipe, *model, *learned, *([] if seed is None else ["--seed", str(seed)]), "--out", str(runs / name)]


def recipe_of(name: str) -> tuple[str, int | None]:
    """The recipe and the seed in the name of a run; `None`: the recipe's own seed."""
    recipe, found, seed = name.partition(SEED)
    return recipe, int(seed) if found else None


def finished(run: Path, base: str | None = None, episodes: str | None = None) -> bool:
    """Whether a run has a checkpoint of its last step.

    UserError if the folder holds something else, or a training with another model or other settings than the recipe:
    its numbers would have the wrong name. `base` is the run to start from and `episodes` the run folder to train on,
    for a recipe without its own; `None` accepts any.
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
        raise UserError(f"{run} was trained with other settings than the recipe has: move it away, or train it again")
    return _last(run).is_dir()


def _decisive(job: Any) -> Any:
    """The job without the settings that do not affect results: device, drift limit and checkpoints."""
    others = {"drift": 0.0, "save_every": 1}
    known = {name: value for name, value in others.items() if hasattr(job.settings, name)}
    return replace(job, device="auto", settings=replace(job.settings, **known))


def is_last(model: Path, name: str) -> bool:
    """Whether this is the last model of the run `name`, in any folder of runs."""
    from orgthink.recipes.registry import RECIPES

    steps = RECIPES[recipe_of(name)[0]].steps
    return model.parts[-4:] == (name, *_checkpoint(steps).parts, "model")


def model_folder(runs: Path, name: str) -> Path:
    """The model folder of a finished run. UserError if the run is not finished."""
    if not finished(runs / name):
        raise UserError(f"{runs / name} has no checkpoint of its last step: train it first")
    return _last(runs / name) / "model"


def metrics(run: Path) -> list[dict[str, Any]]:
    """The complete lines of a run's metrics.jsonl, one per step; empty without the file."""
    file = run / "metrics.jsonl"
    lines = file.read_text().splitlines(keepends=True) if file.is_file() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def described(run: Path) -> dict[str, Any]:
    """Steps, seed, commit, data and seconds of a run."""
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
    """Number of trained tokens of a run over all its steps."""
    return sum(line["trained_tokens"] for line in metrics(run))


def fingerprint(model: Path) -> str:
    """A digest of the weights: a run that is trained again gets another one."""
    digest = hashlib.sha256()
    for file in sorted(model.glob("*.safetensors")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _last(run: Path) -> Path:
    """Folder of the checkpoint of the last step, existing or not."""
    return run / _checkpoint(_job(run).steps)


def _checkpoint(step: int) -> Path:
    """Folder of the checkpoint of a step, relative to the run."""
    return Path("checkpoints", f"step-{step:06d}")


def _job(run: Path) -> Job:
    """The job of a run folder."""
    from orgthink.recipes.registry import training_of  # after the threads are set: it imports torch

    return training_of(RunFolder.open(run)).job


def _seconds(taken: float | dict[str, float]) -> float:
    """Seconds of one step, from one number or from its parts."""
    return sum(taken.values()) if isinstance(taken, dict) else taken


def run_orgthink(*arguments: str) -> None:
    """Run a command and wait for its end. Ctrl-C also reaches the command, which then saves a checkpoint."""
    print(f"orgthink {' '.join(arguments)}", flush=True)
    threads = {"OMP_NUM_THREADS": str(max(1, cores() // SIDE_BY_SIDE))} if arguments[0] == "train" else {}
    process = subprocess.Popen([sys.executable, "-m", "orgthink", *arguments], env={**threads, **os.environ})
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
