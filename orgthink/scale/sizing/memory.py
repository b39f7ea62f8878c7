"""What lies in the memory of a GPU while it trains and while it samples, and how many sequences find room."""

from __future__ import annotations

from dataclasses import dataclass

from orgthink.scale.sizing.hardware import Accelerator, Cluster
from orgthink.scale.sizing.setup import Setup
from orgthink.scale.sizing.shape import Model
from orgthink.scale.sizing.work import Work

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one GPU."""

    weights: float
    """Parameters as they are trained."""
    gradients: float
    """Of all parameters."""
    adam: float
    """First and second moments."""
    reference: float
    """The policy not to diverge from."""
    gathered: float
    """Pieces of the weights that are whole for a moment, while others are sharded."""
    activations: float
    """What the backward of a pack needs, logits included."""
    sampler: float
    """Weights of the sampler."""
    cache: float
    """Room for keys and values; below 0 if not even the weights fit the sampler's share."""
    sleeps: bool
    """Whether sampler and cache are given back while training."""

    @property
    def training(self) -> float:
        """While the trainer works."""
        kept = 0.0 if self.sleeps else self.sampler + max(0.0, self.cache)
        whole = self.weights + self.gradients + self.adam + self.reference + self.gathered + self.activations
        return whole + kept

    @property
    def sampling(self) -> float:
        """While the sampler works: the trainer's weights and Adam's states stay, gradients are gone."""
        return self.weights + self.adam + self.reference + self.sampler + max(0.0, self.cache)


def memory(model: Model, setup: Setup, work: Work, gpu: Accelerator, cluster: Cluster) -> Memory:
    """Of each of `cluster.gpus` GPUs, n of them.

    Weights, gradients, Adam: total·held·(1, 1, 2)/n. Gathered: two of the largest pieces in the arithmetic's width.
    Activations, for t = max(pack, longest context)/split tokens: layers·t·(bytes of a layer), or checkpointed
    layers·t·C·width and one layer; and logits, t·V·(bytes of a logit), as if every token were trained.
    """
    shards = cluster.gpus if setup.sharded else 1
    tokens = max(setup.pack, work.reach) / setup.split
    layer = tokens * model.activation_bytes(setup.computed)
    inputs = tokens * model.layers * model.hidden * setup.computed
    kept = inputs + layer if setup.checkpointed else model.layers * layer
    held = model.total * setup.held / shards
    copy = model.total * setup.sampler / setup.tensor if setup.share else 0.0
    return Memory(
        weights=held,
        gradients=held,
        adam=2 * held,
        reference=model.total * setup.reference / shards,
        gathered=2 * model.largest * setup.computed if shards > 1 else 0.0,
        activations=kept + tokens * model.vocab * setup.logits,
        sampler=copy,
        cache=setup.share * gpu.memory * 1e9 - copy,
        sleeps=setup.sleeps,
    )


def fitting(model: Model, setup: Setup, work: Work, room: Memory, cluster: Cluster) -> int:
    """Sequences of an agent's whole length that all caches together hold: copies·⌊cache/(length·bytes of a token)⌋.

    0 if a cache does not hold the longest. Assumes that nothing is shared: with a prefix cache, the copies of a
    prompt take its room once.
    """
    tokens = int(room.cache // model.kv_bytes(setup.sampler, setup.tensor))
    return 0 if tokens < work.reach else cluster.gpus // setup.tensor * (tokens // work.length)
