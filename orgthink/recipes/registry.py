"""Recipes by name, and the run folders they leave: started once, resumed as often as it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orgthink.errors import UserError
from orgthink.recipes.adjust import put
from orgthink.recipes.jobs import Job, Report
from orgthink.registry import Registry
from orgthink.settings import lacks
from orgthink.store import RunFolder, class_by_kind, plain, typed

JOBS: Registry[type[Job]] = Registry(
    "kind of training",
    "orgthink.jobs",
    {
        "pairs": "orgthink.recipes.jobs:Pairs",
        "trajectories": "orgthink.recipes.jobs:Trajectories",
        "policy": "orgthink.recipes.jobs:Policy",
        "marsrl": "orgthink.recipes.jobs:Mars",
    },
    "a dataclass with settings, steps, require and run",
    lambda cls: isinstance(cls, type) and is_dataclass(cls) and hasattr(cls, "run"),
)
"""Kinds of training, as `kind` in config.json names them."""

RECIPES: Registry[Job] = Registry(
    "recipe",
    "orgthink.recipes",
    {
        "asyncthink-sft": "orgthink.recipes.asyncthink:SFT",
        "asyncthink-qwen3-countdown-sft": "orgthink.recipes.asyncthink:COUNTDOWN_SFT",
        "asyncthink-qwen3-math-sft": "orgthink.recipes.asyncthink:MATH_SFT",
        "asyncthink-qwen3-countdown": "orgthink.recipes.asyncthink:COUNTDOWN",
        "asyncthink-qwen3-math": "orgthink.recipes.asyncthink:MATH",
        "marsrl-qwen3": "orgthink.recipes.marsrl:PAPER",
        "paramanager-sft": "orgthink.recipes.paramanager:SFT",
        "paramanager-qwen3-sft": "orgthink.recipes.paramanager:PAPER_SFT",
        "paramanager-qwen3": "orgthink.recipes.paramanager:PAPER",
    },
    "a job, such as an orgthink.recipes.jobs.Policy",
    lambda job: not isinstance(job, type) and is_dataclass(job) and hasattr(job, "run"),
)
"""Those with "qwen3" are the papers' own, for a model folder of yours."""

if TYPE_CHECKING:
    AnyJob = Job
else:
    AnyJob = class_by_kind(JOBS)


@dataclass(frozen=True, slots=True)
class Training:
    """What is trained: everything that decides the result, as config.json holds it."""

    recipe: str
    """Name of the recipe."""
    job: AnyJob
    """What it runs, as the options set it."""


def adjusted(job: Job, options: dict[str, Any], settings: Sequence[str]) -> Job:
    """A recipe's job with fields of its own replaced, and settings given as `reward.weight=0`: by their path, with
    `none`, a JSON list or a JSON object for what is not a word or a number.

    UserError for what it does not have.
    """
    for name in options:
        if not hasattr(job, name):
            raise UserError(f"a {JOBS.name_of(type(job))} training has no {name}")
    data = plain(job) | {name: plain(value) for name, value in options.items()}
    for given in settings:
        path, equals, _ = given.partition("=")
        first = getattr(type(job.settings), "former", {}).get(path, path).partition(".")[0]
        known = dict.fromkeys((*data["settings"], *data))
        if not (path and equals):
            raise UserError(f"--set {given}: write SETTING=VALUE, such as steps=20; it has {', '.join(known)}")
        if first not in known:
            raise UserError(f"--set {given}: a {JOBS.name_of(type(job))} training {lacks(first, known)}")
        try:
            if first in data:
                put(data, type(job), given)
            else:
                put(data["settings"], type(job.settings), given)
        except UserError as error:
            raise UserError(f"--set {given}: {error}") from None
    return typed(type(job), data, "--set")


def folder_of(recipe: str) -> Path:
    """Where a training goes unless it is told: below runs/, by the name of the recipe, which may be a reference."""
    return Path("runs") / recipe.rpartition("/")[2].replace(":", "-")


def start(training: Training, path: Path) -> RunFolder:
    """A new run folder for a training. UserError if something else is there, or what it starts from is not."""
    training.job.require()
    return RunFolder.create(path, "train", training)


def training_of(folder: RunFolder) -> Training:
    """What is trained in a run folder; UserError if it holds no training."""
    return folder.settings("train", Training)


def go_on(folder: RunFolder, report: Report) -> Path:
    """Train on from the newest checkpoint to the last step; returns the model's folder.

    UserError if the folder holds no training, or another process is at it.
    """
    return training_of(folder).job.run(folder, report) / "model"
