"""GPUs by their data sheets, and the share of it that work reaches."""

from __future__ import annotations

from dataclasses import dataclass

from orgthink.scale.sizing.positive import require_positive


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One GPU, by its data sheet. Rates are of dense matrices: those with sparsity, twice as high, never apply here."""

    memory: float
    """GB, of 10⁹ bytes; what a card has above that is left to the driver."""
    bf16: float
    """TFLOP/s of bfloat16 on tensor cores."""
    fp32: float
    """TFLOP/s of float32 outside them."""
    bandwidth: float
    """GB/s of its memory."""
    link: float
    """GB/s to other GPUs of its node, in one direction."""

    def __post_init__(self) -> None:
        require_positive(self)


ACCELERATORS = {
    "a100": Accelerator(memory=80, bf16=312, fp32=19.5, bandwidth=2039, link=300),
    "h100": Accelerator(memory=80, bf16=989, fp32=67, bandwidth=3350, link=450),
    "h200": Accelerator(memory=141, bf16=989, fp32=67, bandwidth=4800, link=450),
    "b200": Accelerator(memory=180, bf16=2250, fp32=75, bandwidth=7700, link=900),
    "l40s": Accelerator(memory=48, bf16=362, fp32=91.6, bandwidth=864, link=32),
}
"""SXM cards of 80 GB and more; the L40S sits on PCIe."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """GPUs, and how much of their data sheet they reach: these shares are assumed, not measured."""

    gpus: int = 8
    """In all."""
    node: int = 8
    """GPUs of a node."""
    network: float = 50
    """GB/s of a GPU to other nodes, in one direction: 400 Gb/s."""
    usable: float = 0.92
    """Share of the memory that tensors may fill: the rest is fragments, and the buffers of kernels and of NCCL."""
    flops: float = 0.4
    """Share of the TFLOP/s that training and prefill reach."""
    streaming: float = 0.6
    """Share of the memory's bandwidth that decoding reaches, and of the links' that collectives reach."""
    overhead: float = 0.005
    """Seconds that a decoding step takes beside its arithmetic: scheduling, launches, sampling."""

    def __post_init__(self) -> None:
        require_positive(self, "overhead")
        for name in ("usable", "flops", "streaming"):
            if getattr(self, name) > 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it is a share, at most 1")
