"""The model of an engine on a GPU: an estimate from public numbers, not a measurement."""

from __future__ import annotations

from dataclasses import dataclass

from orgthink.errors import UserError
from orgthink.scale.simulation.engine import EngineModel, Roof
from orgthink.scale.sizing.hardware import Accelerator, Cluster
from orgthink.scale.sizing.positive import require_positive
from orgthink.scale.sizing.shape import Model


@dataclass(frozen=True, slots=True)
class Serving:
    """How a replica serves."""

    tensor: int = 1
    """GPUs of a replica (tensor parallelism), assumed to scale perfectly."""
    width: int = 2
    """Bytes of a parameter, and of a number in the cache."""
    slots: int = 256
    """Largest number of requests in a batch."""
    chunk: int = 8192
    """Largest number of tokens read in a step."""
    block: int = 16
    """Tokens of a block of the prefix cache."""
    turnaround: float = 0.02
    """Seconds from the event that calls for a request to its arrival: client, network, tokenizer."""

    def __post_init__(self) -> None:
        require_positive(self, "turnaround")


def estimated(model: Model, gpu: Accelerator, cluster: Cluster, serving: Serving) -> EngineModel:
    """The roofline of `orgthink.scale.sizing.seconds`, step by step.

    Memory: a step reads the weights once, and keys and values of all contexts. Arithmetic: 2·parameters a token, and
    4·layers·H·D for each token to which it attends. UserError for a mixture of experts, whose read weights are not
    linear in the batch, and if the weights do not fit.
    """
    if model.experts > 1:
        raise UserError(
            "the simulation estimates dense models only: a mixture of experts reads other weights each step"
        )
    n = serving.tensor
    kv_bytes = model.kv_bytes(serving.width, n)
    weights = model.total * serving.width / n
    cache = int((gpu.memory * 1e9 * cluster.usable - weights) // kv_bytes)
    if cache < 1:
        raise UserError(f"the weights take {weights / 1e9:.0f} GB of a GPU with {gpu.memory:g} GB: raise tensor")
    byte = 1 / (gpu.bandwidth * 1e9 * cluster.streaming)
    flop = 1 / (gpu.bf16 * 1e12 * cluster.flops * n)
    token, attended = 2 * model.multiplied * flop, model.attention_flops(1) * flop
    return EngineModel(
        memory=Roof(base=model.read(1) * serving.width / n * byte, context=kv_bytes * byte),
        compute=Roof(row=token, context=attended, read=token, seen=attended),
        fixed=cluster.overhead,
        slots=serving.slots,
        cache=cache,
        chunk=serving.chunk,
        block=serving.block,
        turnaround=serving.turnaround,
    )
