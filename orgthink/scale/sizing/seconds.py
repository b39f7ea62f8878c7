"""How long the parts of a step take."""

from __future__ import annotations

import math
from dataclasses import dataclass

from orgthink.scale.sizing.hardware import Accelerator, Cluster
from orgthink.scale.sizing.memory import fitting, memory
from orgthink.scale.sizing.setup import Setup
from orgthink.scale.sizing.shape import Model
from orgthink.scale.sizing.work import Work


@dataclass(frozen=True, slots=True)
class Seconds:
    """Of the parts of a step, one after the other."""

    prefill: float
    """Reading prompts and what is injected."""
    decoding: float
    """Sampling."""
    training: float
    """Forward and backward of all minibatches."""
    push: float
    """New weights to the sampler."""

    @property
    def step(self) -> float:
        """All of it: sampling and training take turns."""
        return self.prefill + self.decoding + self.training + self.push


def seconds(model: Model, setup: Setup, work: Work, gpu: Accelerator, cluster: Cluster) -> Seconds | None:
    """What a step takes, without waiting for frozen models and tools; `None` if the sampler cannot hold a sequence."""
    room = memory(model, setup, work, gpu, cluster)
    fits = fitting(model, setup, work, room, cluster)
    if work.at_once and not fits:
        return None
    return Seconds(
        prefill=_prefill(model, work, gpu, cluster),
        decoding=_decoding(model, setup, work, gpu, cluster, fits) if work.at_once else 0.0,
        training=_training(model, setup, work, gpu, cluster),
        push=_push(model, setup, gpu, cluster) if work.at_once else 0.0,
    )


def _prefill(model: Model, work: Work, gpu: Accelerator, cluster: Cluster) -> float:
    """prefilled·(2·multiplied + attention over half a context) / (n·bf16·flops)."""
    flops = work.prefilled * (2 * model.multiplied + model.attention_flops(work.length / 2))
    return flops / (cluster.gpus * gpu.bf16 * 1e12 * cluster.flops)


def _decoding(model: Model, setup: Setup, work: Work, gpu: Accelerator, cluster: Cluster, fits: int) -> float:
    """Steps·(seconds of a step), for each of n/tensor copies.

    Steps: max(path, decoded by a copy/most sequences at once), the latter bounded by the work, the cache and the slots.
    Seconds: overhead + max(bytes read/bandwidth, 2·multiplied·sequences/flops), at the mean number of sequences; read
    are the weights once, and keys and values of half an agent's length for each sequence. Tensor parallelism is taken
    to be perfect.
    """
    copies = cluster.gpus / setup.tensor
    most = min(work.problems * work.group * work.at_once, fits, copies * setup.slots) / copies
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
    / (n·TFLOP/s·flops). Collectives, for each pack: the weights are gathered for every forward and for the backward,
    and gradients scattered in float32, (n − 1)/n of them over the slowest link. The optimizer's step is left out.
    """
    workers = cluster.gpus if setup.sharded else 1
    rate = (gpu.bf16 if setup.computed == 2 else gpu.fp32) * 1e12 * cluster.flops * workers
    passes = 3 + setup.checkpointed + setup.frozen
    flops = work.computed * (2 * model.multiplied + model.attention_flops(work.length / 2)) * passes
    packs = math.ceil(work.computed * setup.split / (workers * max(setup.pack, work.reach)))
    moved = model.total * (setup.computed * (2 + setup.frozen) + 4) * (workers - 1) / workers
    return max(flops / rate, packs * moved / _link(gpu, cluster))


def _push(model: Model, setup: Setup, gpu: Accelerator, cluster: Cluster) -> float:
    """Each GPU gathers what it lacks over the slowest link, total·sampler·(n − 1)/n, and writes its part of a copy."""
    whole = model.total * setup.sampler
    shards = cluster.gpus if setup.sharded else 1
    written = whole / setup.tensor / (gpu.bandwidth * 1e9 * cluster.streaming)
    return whole * (shards - 1) / shards / _link(gpu, cluster) + written


def _link(gpu: Accelerator, cluster: Cluster) -> float:
    """Bytes/s of a collective of all GPUs: that of the network as soon as there are several nodes."""
    return (gpu.link if cluster.gpus <= cluster.node else cluster.network) * 1e9 * cluster.streaming
