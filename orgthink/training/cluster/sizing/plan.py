"""Whether a step fits on a cluster, what it lacks, and which part takes longest."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from orgthink.training.cluster.sizing.model import Model
from orgthink.training.cluster.sizing.step import Accelerator, Cluster, Setup, Work

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one GPU."""

    weights: float
    """Trained parameters."""
    gradients: float
    """Of all parameters."""
    adam: float
    """First and second moments."""
    reference: float
    """Parameters of the reference policy of the KL term."""
    gathered: float
    """Weights that are gathered from shards, or copied to another width, at one time."""
    activations: float
    """Activations that the backward pass of a pack needs, logits included."""
    sampler: float
    """Weights of the sampler."""
    cache: float
    """Keys and values; below 0 if the weights alone exceed the sampler's share."""
    sleeps: bool
    """Whether sampler and cache are released during training."""

    @property
    def training(self) -> float:
        """Total during training."""
        sampler = 0.0 if self.sleeps else self.sampler + max(0.0, self.cache)
        states = self.weights + self.gradients + self.adam + self.reference
        return states + self.gathered + self.activations + sampler

    @property
    def sampling(self) -> float:
        """Total during sampling: weights and Adam states of the trainer stay, gradients are released."""
        return self.weights + self.adam + self.reference + self.sampler + max(0.0, self.cache)


def memory(model: Model, setup: Setup, work: Work, gpu: Accelerator, cluster: Cluster) -> Memory:
    """Memory of each of the n = `cluster.gpus` GPUs.

    Weights, gradients, Adam: total·held·(1, 1, 2)/n. Gathered at the computed width: two of the largest layers of
    sharded weights; without shards all weights, where they are held at another width (autocast).
    Activations, for t = max(pack, longest context) tokens: layers·t·(bytes of a layer); with checkpoints
    layers·t·C·width and one layer. Logits: t·V·(bytes of a logit), as if every token were trained.
    """
    shards = cluster.gpus if setup.sharded else 1
    tokens = max(setup.pack, work.reach)
    layer = tokens * model.activation_bytes(setup.computed)
    inputs = tokens * model.layers * model.hidden * setup.computed
    activations = inputs + layer if setup.checkpointed else model.layers * layer
    held = model.total * setup.held / shards
    copy = model.total * setup.sampler / setup.tensor if setup.share else 0.0
    if setup.sharded:
        gathered = 2 * model.largest if shards > 1 else 0
    else:
        gathered = model.total if setup.computed != setup.held else 0
    return Memory(
        weights=held,
        gradients=held,
        adam=2 * held,
        reference=model.total * setup.reference / shards,
        gathered=float(gathered * setup.computed),
        activations=activations + tokens * model.vocab * setup.logits,
        sampler=copy,
        cache=setup.share * gpu.memory * 1e9 - copy,
        sleeps=setup.sleeps,
    )


def fitting(model: Model, setup: Setup, work: Work, used: Memory, cluster: Cluster) -> int:
    """Sequences of mean length that all caches together hold: copies·⌊cache/(length·bytes of a token)⌋.

    0 if a cache does not hold the longest sequence. Assumes that sequences share no prefix: with a prefix cache, a
    prompt is stored once for all its attempts.
    """
    tokens = int(used.cache // model.kv_bytes(setup.sampler, setup.tensor))
    return 0 if tokens < work.reach else cluster.gpus // setup.tensor * (tokens // work.length)


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
    packs = math.ceil(work.computed / (workers * max(setup.pack, work.reach)))
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


@dataclass(frozen=True, slots=True)
class Plan:
    """Memory and time of a model's training step on a cluster."""

    name: str
    """Name of the trainer: `embedded` or `verl`."""
    model: Model
    """The trained model."""
    setup: Setup
    """How it is trained."""
    work: Work
    """Work of a step."""
    gpu: Accelerator
    """The GPU."""
    cluster: Cluster = field(default_factory=Cluster)
    """Number of GPUs, and the rates they reach."""

    def __post_init__(self) -> None:
        gpus = self.cluster.gpus
        if gpus % self.setup.tensor:
            raise ValueError(f"tensor is {self.setup.tensor}: it must divide the {gpus} GPUs")
        if not self.setup.sharded and gpus > 1:
            raise ValueError(f"{self.name} trains on one GPU, not on {gpus}")

    @property
    def memory(self) -> Memory:
        return memory(self.model, self.setup, self.work, self.gpu, self.cluster)

    @property
    def fitting(self) -> int:
        return fitting(self.model, self.setup, self.work, self.memory, self.cluster)

    @property
    def seconds(self) -> Seconds | None:
        return seconds(self.model, self.setup, self.work, self.gpu, self.cluster)

    @property
    def lacks(self) -> list[str]:
        """What does not fit, each with a remedy; empty if everything fits."""
        usable, memory = self.gpu.memory * 1e9 * self.cluster.usable, self.memory
        states = memory.weights + memory.gradients + memory.adam
        more = "more GPUs" if self.setup.sharded else "shard it, with verl"
        smaller = "a smaller pack" if self.setup.pack > self.work.reach else "shorter rows"
        found = []
        if memory.training > usable:
            remedy = more if states >= memory.activations else smaller
            found.append(f"training lacks {(memory.training - usable) / GIB:.1f} GiB a GPU ({remedy})")
        if self.work.concurrent and memory.sampling > usable:
            remedy = "a larger tensor" if memory.cache < 0 else f"{more}, or a smaller share"
            found.append(f"sampling lacks {(memory.sampling - usable) / GIB:.1f} GiB a GPU ({remedy})")
        if self.work.concurrent and not self.fitting:
            found.append(f"no cache holds {self.work.reach:,} tokens (a larger share or tensor)")
        return found

    @property
    def verdict(self) -> str:
        """Whether it fits, and if so which part takes longest."""
        if self.lacks:
            return "does not fit: " + "; ".join(self.lacks)
        seconds = self.seconds
        assert seconds is not None, "a sequence fits"
        parts = {name: getattr(seconds, name) for name in ("prefill", "decoding", "training", "push")}
        longest = max(parts, key=parts.__getitem__)
        return f"fits; {longest} takes longest, {parts[longest] / seconds.step:.0%} of the step"
