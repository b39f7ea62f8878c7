"""Open the embedded backend of a training: model and sampler in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from orgthink.engines import opener
from orgthink.engines.engine import Engine
from orgthink.models.trainable import LoraSettings, open_trainable, resolve_device, torch_dtype
from orgthink.training.backend import EmbeddedBackend
from orgthink.training.optimization import Optimization
from orgthink.util.errors import UserError
from orgthink.util.settings import lacks

SLOTS = 192
"""Number of requests that the local sampler decodes in parallel. A step rolls out more episodes than that."""
LOCAL_SETTINGS = {"device", "slots"}
"""Settings of the local sampler."""
VLLM_SETTINGS = {
    "attention_backend", "block_size", "cpu_offload_gb", "disable_log_stats", "distributed_executor_backend", "dtype",
    "enable_chunked_prefill", "enable_prefix_caching", "enforce_eager", "gpu_memory_utilization", "hf_overrides",
    "kv_cache_dtype", "load_format", "max_model_len", "max_num_batched_tokens", "max_num_seqs", "quantization", "seed",
    "swap_space", "tensor_parallel_size", "trust_remote_code",
}  # fmt: skip
"""Settings of vLLM that the local sampler ignores, in a recipe for vLLM that samples here."""


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


def require_local(settings: Mapping[str, Any]) -> None:
    """UserError for settings that are none of the local sampler, and for values that it cannot take."""
    for name in sorted(settings.keys() - LOCAL_SETTINGS - VLLM_SETTINGS):
        raise UserError(f"sampler_settings {lacks(name, sorted(LOCAL_SETTINGS))}")
    slots = settings.get("slots", SLOTS)
    if not isinstance(slots, int) or slots < 1:
        raise UserError(f"sampler_settings.slots is {slots}: it must be a whole number from 1 on")
    resolve_device(str(settings.get("device", "cpu")))


def sampler(folder: Path, job: Equipment) -> Engine:
    """Open the sampler. `local` decodes on the event loop, so runs are reproducible bit for bit.

    UserError if the engine cannot update its weights.
    """
    settings = job.sampler_settings
    if job.sampler == "local":  # a recipe for vLLM that samples here keeps its settings of vLLM
        settings = {"slots": SLOTS} | {name: settings[name] for name in LOCAL_SETTINGS & settings.keys()}
        settings["device"] = resolve_device(str(settings.get("device", "cpu")))
    engine = asyncio.run(opener(job.sampler)(str(folder), threaded=False, **settings))
    if not engine.updatable:
        raise UserError(f"sampler {job.sampler}: its weights cannot be updated, so it cannot sample for training")
    return engine
