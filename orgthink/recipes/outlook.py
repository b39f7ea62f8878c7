"""What a training would do, without doing it: its settings, what is yet to be named, and the bounds that follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orgthink.recipes.jobs import Reinforced
from orgthink.recipes.registry import JOBS
from orgthink.store import plain
from orgthink.tasks.from_file import MissingFile
from orgthink.training.models import resolve_device

if TYPE_CHECKING:
    from orgthink.recipes.jobs import Job


def outlook(job: Job) -> dict[str, Any]:
    """The job as config.json would hold it, and for reinforcement learning its bounds."""
    seen: dict[str, Any] = {"job": {"kind": JOBS.name_of(type(job)), **plain(job)}}
    if isinstance(job, Reinforced):
        seen["bounds"] = job.settings.bounds()
    return seen


def unnamed(job: Job) -> list[str]:
    """What a run needs and only the user has: options that name it, and a file of problems that is not there.

    UserError for what is wrong, as `job.require`, as far as that can be seen without it.
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
