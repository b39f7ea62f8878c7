"""A dry run of a training: its settings, the options that the user still has to give, and upper bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orgthink.models.trainable import resolve_device
from orgthink.tasks.from_file import MissingFile
from orgthink.training.recipes.jobs import Reinforced
from orgthink.training.recipes.registry import JOBS
from orgthink.util.validation import plain

if TYPE_CHECKING:
    from orgthink.training.recipes.jobs import Job


def outlook(job: Job) -> dict[str, Any]:
    """The job as config.json would store it and, for reinforcement learning, its bounds per step."""
    bounds = {"bounds": job.settings.bounds()} if isinstance(job, Reinforced) else {}
    return {"job": {"kind": JOBS.name_of(type(job)), **plain(job)}, **bounds}


def unnamed(job: Job) -> list[str]:
    """What the user still has to provide: options such as `--model`, and a missing file of problems.

    UserError for anything else that `job.require` would refuse, as far as it can be checked without these.
    """
    options = [f"--{name}" for name in ("model", "pairs", "episodes") if getattr(job, name, "its own") is None]
    try:
        if not options:
            job.require()
        else:
            resolve_device(job.device)
            if isinstance(job, Reinforced):
                job.settings.require(None)
    except MissingFile as missing:
        return [*options, f"{missing.file} (the problems of rollout.task)"]
    return options
