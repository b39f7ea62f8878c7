"""The embedded backend of a training: its model and its sampler in this process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Protocol, cast

from orgthink.engines import ENGINES
from orgthink.engines.engine import Updatable
from orgthink.errors import UserError
from orgthink.training.backend import EmbeddedBackend
from orgthink.training.models import LoraSettings, open_trainable, resolve_device, torch_dtype
from orgthink.training.rl import Optimization

SLOTS = 192
"""Requests that the local sampler decodes at once: a step rolls out more episodes than that."""


class Equipment(Protocol):
    """What of a training decides its model and its sampler."""

    @property
    def settings(self) -> Optimization:
        """How it trains."""
        ...

    @property
    def lora(self) -> LoraSettings | None:
        """A low-rank adapter to train in place of the weights."""
        ...

    @property
    def dtype(self) -> str:
        """In which the weights are held."""
        ...

    @property
    def device(self) -> str:
        """`cpu`, `cuda`, or whichever is there."""
        ...

    @property
    def sampler(self) -> str:
        """Engine that rolls out."""
        ...

    @property
    def sampler_settings(self) -> dict[str, Any]:
        """Of that engine."""
        ...

    @property
    def pack_tokens(self) -> int:
        """Tokens that are computed in one go."""
        ...


def embedded(folder: Path, job: Equipment) -> EmbeddedBackend:
    """Open the model twice: once to train, once to sample. UserError if the folder holds no usable model."""
    device, dtype = resolve_device(job.device), torch_dtype(job.dtype)
    model = open_trainable(folder, job.lora, dtype, device, job.settings.seed)
    reference = open_trainable(folder, None, dtype, device) if job.settings.loss.kl > 0 else None
    return EmbeddedBackend(model, sampler(folder, job), folder, pack_tokens=job.pack_tokens, reference=reference)


def sampler(folder: Path, job: Equipment) -> Updatable:
    """An engine whose weights can be updated. `local` decodes on the event loop, so that runs repeat to the bit."""
    settings = {"slots": SLOTS} if job.sampler == "local" else job.sampler_settings
    engine = asyncio.run(ENGINES.named(job.sampler)(str(folder), threaded=False, **settings))
    if not hasattr(engine, "update_weights"):
        raise UserError(f"sampler {job.sampler}: its weights cannot be updated, so it cannot sample for training")
    return cast(Updatable, engine)
