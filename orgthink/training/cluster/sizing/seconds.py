"""Duration of the parts of a step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from orgthink.training.cluster.sizing.hardware import Accelerator, Cluster
from orgthink.training.cluster.sizing.memory import fitting, memory
from orgthink.training.cluster.sizing.setup import Setup
from orgthink.training.cluster.sizing.shape import Model
from orgthink.training.cluster.sizing.work import Work


@dataclass(frozen=True, slots=True)
class Seconds:
    """Seconds of the parts of a step, which follow each other."""

    prefill: float
    """Reading of prompts and injected tokens."""
    decoding: float
    """Sampling."""
    training: float
    """Forward and backward of all minibatches."""
    push: float
    """Transfer of new weights to the sampler."""

    @property
    def step(self) -> float:
        """The whole step: sampling and training alternate."""
        return self.prefill + self.decoding + self.training + self.push


def seconds(model: Model, setup: Setup, work: Work, gpu: Accelerator, cluster: Cluster) -> Seconds | None:
    """Seconds of a step, without frozen models and tools; `None` if the sampler cannot hold a sequence."""
    slots = fitting(model, setup, work, memory(model, setup, work, gpu, cluster), cluster)
    if work.concurrent and not slots:
        return None
    return Seconds(
        prefill=_prefill(model, work, gpu, cluster),
        decoding=_decoding(model, setup, work, gpu, cluster, slots) if work.concurrent else 0.0,
        training=_training(model, setup, work, gpu, cluster),
        push=_push(model, setup, gpu, cluster) if work.concurrent else 0.0,
    )


def _prefill(model: Model, work: Work, gpu: Accelerator, cluster: Cluster) -> float:
    """prefilled·(2·multiplied + attention over half a context) / (n·bf16·flops)."""
    flops = work.prefilled * (2 * model.multiplied + model.attention_flops(work.length / 2))
    return flops / (cluster.gpus * gpu.bf16 * 1e12 * cluster.flops)


def _decoding(model: Model, setup: Setup, work: Work, gpu: Accelerator, cluster: Cluster, slots: int) -> float:
    """Steps·(seconds of a step), for each of n/tensor copies.

    Steps: max(path, tokens decoded by a copy/largest batch). The work, the cache and `setup.slots` bound the batch.
    Seconds: overhead + max(bytes read/bandwidth, 2·multiplied·sequences/flops), at the mean number of sequences. A step
    reads the weights once, and for each sequence the keys and values of half its length. Tensor parallelism is assumed
    to scale perfectly.
    """
    copies = cluster.gpus / setup.tensor
    most = min(work.problems * work.group * work.concurrent, slots, copies * setup.slots) / copies
    decoded = work.decoded / copies
    steps = max(work.path, decoded / most)
    sequences = decoded / steps
    cached = sequences * work.length / 2 * model.kv_bytes(setup.sampler, setup.tensor)
    read = model.read(sequences) * setup.sampler / setup.tensor + cached
    flops = sequences * (2 * model.multiplied + model.attention_flops(work.length / 2)) / setup.tensor
    reading = read / (gpu.bandwidth * 1e9 * cluster.streaming)
    return steps * (cluster.overhead + max(reading, flops / (gpu.bf16 * 1e12 * cluster.flops)))


def _training(model: Model, setup: Setup, work: Work, gpu: Accelerator, cluster: Cluster) -> float:
    """max(arithmetic, collectives).

    Arithmetic: computed·(2·multiplied + attention over half a context)·(3, or 4 checkpointed, and frozen passes)
    / (n·TFLOP/s·flops). Collectives, for each pack: weights are gathered for every forward and for the backward, and
    gradients are scattered in float32; (n − 1)/n of these bytes pass the slowest link. The optimizer step is omitted.
    """
    workers = cluster.gpus if setup.sharded else 1
    rate = (gpu.bf16 if setup.computed == 2 else gpu.fp32) * 1e12 * cluster.flops * workers
    passes = 3 + setup.checkpointed + setup.frozen
    flops = work.computed * (2 * model.multiplied + model.attention_flops(work.length / 2)) * passes
    packs = math.ceil(work.computed * setup.split / (workers * max(setup.pack, work.reach)))
    moved = model.total * (setup.computed * (2 + setup.frozen) + 4) * (workers - 1) / workers
    return max(flops / rate, packs * moved / _link(gpu, cluster))


def _push(model: Model, setup: Setup, gpu: Accelerator, cluster: Cluster) -> float:
    """Gather of the other shards over the slowest link, total·sampler·(n − 1)/n, and write of a part of a copy."""
    whole = model.total * setup.sampler
    shards = cluster.gpus if setup.sharded else 1
    written = whole / setup.tensor / (gpu.bandwidth * 1e9 * cluster.streaming)
    return whole * (shards - 1) / shards / _link(gpu, cluster) + written


def _link(gpu: Accelerator, cluster: Cluster) -> float:
    """Bytes/s of a collective of all GPUs: the network limits it if there are several nodes."""
    return (gpu.link if cluster.gpus <= cluster.node else cluster.network) * 1e9 * cluster.streaming
