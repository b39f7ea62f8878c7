"""The embedded backend of a training: its model and its sampler in this process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, cast

from orgthink.engines import ENGINES
from orgthink.engines.engine import Updatable
from orgthink.errors import UserError
from orgthink.training.backend import EmbeddedBackend
from orgthink.training.models import chosen, open_trainable, precision

if TYPE_CHECKING:
    from orgthink.recipes.jobs import Reinforced

SLOTS = 192
"""Requests that the local sampler decodes at once: a step rolls out more episodes than that."""


def embedded(folder: Path, job: Reinforced) -> EmbeddedBackend:
    """Open the model twice: once to train, once to sample. UserError if the folder holds no usable model."""
    device, dtype = chosen(job.device), precision(job.dtype)
    model = open_trainable(folder, job.lora, dtype, device, job.settings.seed)
    reference = open_trainable(folder, None, dtype, device) if job.settings.loss.kl > 0 else None
    return EmbeddedBackend(model, sampler(folder, job), folder, pack_tokens=job.pack_tokens, reference=reference)


def sampler(folder: Path, job: Reinforced) -> Updatable:
    """An engine whose weights can be updated. `local` decodes on the event loop, so that runs repeat to the bit."""
    settings = {"slots": SLOTS} if job.sampler == "local" else job.sampler_settings
    engine = asyncio.run(ENGINES.named(job.sampler)(str(folder), threaded=False, **settings))
    if not hasattr(engine, "update_weights"):
        raise UserError(f"sampler {job.sampler}: its weights cannot be updated, so it cannot sample for training")
    return cast(Updatable, engine)
