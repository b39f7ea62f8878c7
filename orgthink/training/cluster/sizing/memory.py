"""Memory of a GPU during training and during sampling, and the number of sequences that fit."""

from __future__ import annotations

from dataclasses import dataclass

from orgthink.training.cluster.sizing.hardware import Accelerator, Cluster
from orgthink.training.cluster.sizing.setup import Setup
from orgthink.training.cluster.sizing.shape import Model
from orgthink.training.cluster.sizing.work import Work

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
    Activations, for t = max(pack, longest context)/split tokens: layers·t·(bytes of a layer); with checkpoints
    layers·t·C·width and one layer. Logits: t·V·(bytes of a logit), as if every token were trained.
    """
    shards = cluster.gpus if setup.sharded else 1
    tokens = max(setup.pack, work.reach) / setup.split
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
