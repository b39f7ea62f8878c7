"""The registry of recipes, and the run folders of trainings: start, resume and read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Annotated, Any

from orgthink.engines import shipped
from orgthink.export.trackers import tracking
from orgthink.models.trainable import resolve_device
from orgthink.record.folder import TRACKER, RunFolder
from orgthink.tasks.task import MissingFile
from orgthink.training.optimization import LoopSettings
from orgthink.training.recipes.adjust import put
from orgthink.training.recipes.jobs import Job, Report
from orgthink.util.errors import UserError, explained
from orgthink.util.references import absolute
from orgthink.util.registry import Registry, made
from orgthink.util.settings import ByKind, lacks, plain, typed


def _job(found: Any) -> Job | type[Job] | None:
    found = made(found)
    return found if is_dataclass(found) and hasattr(found, "run") else None


RECIPES: Registry[Job | type[Job]] = Registry(
    "recipe",
    "orgthink.recipes",
    {
        "pairs": "orgthink.training.recipes.jobs:Pairs",
        "trajectories": "orgthink.training.recipes.jobs:Trajectories",
        "policy": "orgthink.training.recipes.jobs:Policy",
        "marsrl": "orgthink.training.recipes.jobs:Mars",
        "evolution-strategies": "orgthink.training.recipes.evolution:Evolution",
        "asyncthink": "orgthink.training.recipes.any_model:ASYNCTHINK",
        "asyncthink-cold-start": "orgthink.training.recipes.any_model:COLD_START",
        "verifier-corrector": "orgthink.training.recipes.any_model:VERIFIER_CORRECTOR",
        "paramanager": "orgthink.training.recipes.any_model:PARAMANAGER",
        "evolution": "orgthink.training.recipes.any_model:EVOLUTION",
        "asyncthink-sft": "orgthink.training.recipes.papers:ASYNCTHINK_SFT",
        "asyncthink-qwen3-countdown-sft": "orgthink.training.recipes.papers:ASYNCTHINK_COUNTDOWN_SFT",
        "asyncthink-qwen3-math-sft": "orgthink.training.recipes.papers:ASYNCTHINK_MATH_SFT",
        "asyncthink-qwen3-countdown": "orgthink.training.recipes.papers:ASYNCTHINK_COUNTDOWN",
        "asyncthink-qwen3-countdown-sequential": "orgthink.training.recipes.papers:ASYNCTHINK_COUNTDOWN_SEQUENTIAL",
        "asyncthink-qwen3-math": "orgthink.training.recipes.papers:ASYNCTHINK_MATH",
        "asyncthink-qwen3-math-sequential-l1k": "orgthink.training.recipes.papers:ASYNCTHINK_MATH_L1K",
        "asyncthink-qwen3-math-sequential-l2k": "orgthink.training.recipes.papers:ASYNCTHINK_MATH_L2K",
        "marsrl-qwen3": "orgthink.training.recipes.papers:MARSRL",
        "paramanager-sft": "orgthink.training.recipes.papers:PARAMANAGER_SFT",
        "paramanager-qwen3-sft": "orgthink.training.recipes.papers:PARAMANAGER_PAPER_SFT",
        "paramanager-qwen3": "orgthink.training.recipes.papers:PARAMANAGER",
    },
    "a job, such as an orgthink.training.recipes.jobs.Policy, or its class",
    _job,
)
"""Recipes, and kinds of training (classes of jobs), by name. Recipes with "qwen3" have the papers' settings and need a
model folder. The name of a class is `kind` in config.json."""


def recipe_named(name: str) -> Job:
    """The job of a recipe; UserError for an unknown name and for a kind of training."""
    found = RECIPES.named(name)
    if isinstance(found, type):
        raise UserError(f"{name} is a kind of training, not a recipe: name a recipe, such as {next(iter(recipes()))}")
    return found


def recipes() -> dict[str, Job]:
    """All registered recipes, by name."""
    return {name: job for name in RECIPES if not isinstance(job := RECIPES[name], type)}


AnyJob = Annotated[Job, ByKind(RECIPES, object)]


@dataclass(frozen=True, slots=True)
class Training:
    """Everything that determines the result of a training, as config.json stores it."""

    recipe: str
    """Name of the recipe."""
    job: AnyJob
    """The recipe's job, changed by the options."""


def adjusted(job: Job, options: dict[str, Any], settings: Sequence[str]) -> Job:
    """A recipe's job with changed fields and settings.

    `options` are values of the job's fields. `settings` have the form PATH=VALUE, such as `reward.weight=0`. VALUE is a
    word, a number, `none`, a JSON list or a JSON object. A `task` is a field or `rollout.task`. UserError for an
    unknown field or setting.
    """
    if "task" in options and hasattr(job.settings, "rollout"):
        options = dict(options)
        settings = (f"rollout.task={options.pop('task')}", *settings)
    for name in options:
        if not hasattr(job, name):
            raise UserError(f"a {RECIPES.name_of(type(job))} training has no {name}")
    data = plain(job) | {name: plain(value) for name, value in options.items()}
    for given in settings:
        path, equals, _ = given.partition("=")
        first = path.partition(".")[0]
        known = dict.fromkeys((*data["settings"], *data))
        if not (path and equals):
            raise UserError(f"--set {given}: write SETTING=VALUE, such as steps=20; it has {', '.join(known)}")
        if first not in known:
            raise UserError(f"--set {given}: a {RECIPES.name_of(type(job))} training {lacks(first, known)}")
        place, hint = (data, type(job)) if first in data else (data["settings"], type(job.settings))
        with explained(f"--set {given}", UserError):
            put(place, hint, given)
    return typed(type(job), with_whole_paths(data), "--set")


def with_whole_paths(options: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a job with the whole paths of the model's folder and of the files to learn from, so that a run goes on
    wherever it is called. A model of an installed package keeps its name."""
    found = dict(options)
    for name in ("model", "pairs", "episodes"):
        value = found.get(name)
        if (
            value
            and isinstance(value, str | Path)
            and (name != "model" or (not shipped(str(value)) and Path(value).exists()))
        ):
            found[name] = str(Path(value).resolve())
    return found


def folder_of(recipe: str) -> Path:
    """Default run folder of a training: `runs/` and the name of the recipe, which may be a reference to a file."""
    return Path("runs") / recipe.rpartition("/")[2].replace(":", "-")


def start(training: Training, path: Path) -> RunFolder:
    """Create the run folder of a training.

    UserError if `path` is in use, or if something that the training needs is missing.
    """
    training.job.require()
    unused = is_unused(path)
    for name in _NOTES if unused else ():
        (path / name).unlink(missing_ok=True)
    return RunFolder.create(path, "train", training, overwrite=unused)


_NOTES = ("pairs.json", "trajectories.json", "base.json", "task.json", "run.toml", TRACKER)
"""Files in which a training remembers what it learns from, from which weights, by which options, and where it logs."""


def is_unused(path: Path) -> bool:
    """Whether a folder holds a training that failed before it computed anything: it may be begun again."""
    if not (path / "config.json").is_file():
        return False
    empty = {"episodes.jsonl", "metrics.jsonl"}
    for entry in path.iterdir():
        nothing = entry.name in empty and entry.stat().st_size == 0
        if not (nothing or entry.name in ("config.json", *_NOTES) or entry.name.startswith(".")):
            return False
    return RunFolder.open(path).config["kind"] == "train"


def held(training: Training, path: Path) -> RunFolder | None:
    """The run folder at a path, if this training has begun there; `None` if none has. UserError for another one."""
    if not (path / "config.json").is_file() or is_unused(path):
        return None
    folder = RunFolder.open(path)
    if absolute(plain(training_of(folder))) != absolute(plain(training)):
        raise UserError(f"{path} holds a run of other settings: move it away, or choose another folder")
    return folder


def training_of(folder: RunFolder) -> Training:
    """The training of a run folder. UserError if the folder holds no training."""
    return folder.settings("train", Training)


def go_on(folder: RunFolder, report: Report) -> Path:
    """Train from the newest checkpoint to the last step. Returns the folder of the model, or else what the job made.

    UserError if the folder holds no training, or another process trains in it.
    """
    with tracking(folder) as log:

        def both(line: dict[str, Any]) -> None:
            log(line["step"], line)
            report(line)

        made = training_of(folder).job.run(folder, both)
    return made / "model" if (made / "model").is_dir() else made


def outlook(job: Job) -> dict[str, Any]:
    """The job as config.json would store it and, with rollouts, its bounds per step."""
    bounds = {"bounds": job.settings.bounds()} if isinstance(job.settings, LoopSettings) else {}
    return {"job": {"kind": RECIPES.name_of(type(job)), **plain(job)}, **bounds}


def unnamed(job: Job) -> list[str]:
    """What the user still has to provide: options such as `--model`, and a missing file of problems.

    UserError for anything else that `job.require` would refuse, as far as it can be checked without these.
    """
    made = ("pairs",) if getattr(job, "task", None) is not None else ()
    given = (name for name in ("model", "pairs", "episodes") if name not in made)
    options = [f"--{name}" for name in given if getattr(job, name, "its own") is None]
    try:
        if not options:
            job.require()
        else:
            resolve_device(job.device)
            if isinstance(job.settings, LoopSettings):
                job.settings.require(None)
    except MissingFile as missing:
        return [*options, f"{missing.file} (the problems of rollout.task)"]
    return options
