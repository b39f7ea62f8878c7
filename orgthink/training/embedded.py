"""Open the embedded backend of a training: model and sampler in this process."""

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
"""Number of requests that the local sampler decodes in parallel. A step rolls out more episodes than that."""
LOCAL_SETTINGS = {"device", "slots"}
"""Settings of the local sampler."""


class Equipment(Protocol):
    """The settings of a training that determine its model and its sampler."""

    @property
    def settings(self) -> Optimization:
        """Settings of the training."""
        ...

    @property
    def lora(self) -> LoraSettings | None:
        """Low-rank adapter to train instead of the weights; `None`: all weights are trained."""
        ...

    @property
    def dtype(self) -> str:
        """Name of the data type of the weights, such as `float32`."""
        ...

    @property
    def mixed_precision(self) -> bool:
        """Whether to compute in bfloat16. Weights, gradients and optimizer stay in `dtype`."""
        ...

    @property
    def device(self) -> str:
        """`cpu`, `cuda`, or `auto` for whichever is available."""
        ...

    @property
    def sampler(self) -> str:
        """Name of the engine for rollouts."""
        ...

    @property
    def sampler_settings(self) -> dict[str, Any]:
        """Settings of that engine; the local one takes `device` and `slots`."""
        ...

    @property
    def pack_tokens(self) -> int:
        """Largest number of tokens in a forward pass."""
        ...

    @property
    def workers(self) -> int:
        """Number of threads that compute passes side by side on a CPU."""
        ...


def embedded(folder: Path, job: Equipment) -> EmbeddedBackend:
    """Open the model for training and again for sampling. UserError if the folder has no usable model."""
    device, dtype = resolve_device(job.device), torch_dtype(job.dtype)
    model = open_trainable(folder, job.lora, dtype, device, job.settings.seed)
    reference = open_trainable(folder, None, dtype, device) if job.settings.loss.kl > 0 else None
    workers = job.workers if device == "cpu" else 1
    settings = {
        "pack_tokens": job.pack_tokens,
        "reference": reference,
        "mixed_precision": job.mixed_precision,
        "workers": workers,
    }
    return EmbeddedBackend(model, sampler(folder, job), folder, **settings)


def sampler(folder: Path, job: Equipment) -> Updatable:
    """Open the sampler. `local` decodes on the event loop, so runs are reproducible bit for bit.

    UserError if the engine cannot update its weights.
    """
    settings = job.sampler_settings
    if job.sampler == "local":  # a recipe for vLLM that samples here keeps its settings of vLLM
        settings = {"slots": SLOTS} | {name: settings[name] for name in LOCAL_SETTINGS & settings.keys()}
    engine = asyncio.run(ENGINES.named(job.sampler)(str(folder), threaded=False, **settings))
    if not hasattr(engine, "update_weights"):
        raise UserError(f"sampler {job.sampler}: its weights cannot be updated, so it cannot sample for training")
    return cast(Updatable, engine)
