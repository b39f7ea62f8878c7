"""The embedded backend of a training: its model and its sampler in this process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Protocol

from orgthink.engines.engine import Updatable
from orgthink.training.backend import EmbeddedBackend
from orgthink.training.models import LoraSettings, chosen, open_trainable, precision
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
    device, dtype = chosen(job.device), precision(job.dtype)
    model = open_trainable(folder, job.lora, dtype, device, job.settings.seed)
    reference = open_trainable(folder, None, dtype, device) if job.settings.loss.kl > 0 else None
    return EmbeddedBackend(model, sampler(folder, job), folder, pack_tokens=job.pack_tokens, reference=reference)


def sampler(folder: Path, job: Equipment) -> Updatable:
    """An engine whose weights can be updated. `local` decodes on the event loop, so that runs repeat to the bit."""
    if job.sampler == "vllm":
        from orgthink.engines.vllm import VllmEngine

        return asyncio.run(VllmEngine.open(folder, **job.sampler_settings))
    from orgthink.engines.local.engine import LocalEngine

    return LocalEngine.open(folder, slots=SLOTS, threaded=False)
