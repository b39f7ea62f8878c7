"""GPUs by their data sheets, and the share of these rates that is reached."""

from __future__ import annotations

from dataclasses import dataclass

from orgthink.training.cluster.sizing.positive import require_positive


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One GPU, by its data sheet. Rates are for dense matrices; the doubled rates with sparsity do not apply."""

    memory: float
    """GB of 10⁹ bytes; the driver has the rest of the card."""
    bf16: float
    """TFLOP/s of bfloat16 on tensor cores."""
    fp32: float
    """TFLOP/s of float32 without tensor cores."""
    bandwidth: float
    """Memory bandwidth in GB/s."""
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
    """GPUs, and the share of their data sheet that they reach: these shares are assumed, not measured."""

    gpus: int = 8
    """Number of GPUs."""
    node: int = 8
    """GPUs per node."""
    network: float = 50
    """GB/s of a GPU to other nodes, in one direction: 400 Gb/s."""
    usable: float = 0.92
    """Share of the memory for tensors; fragmentation and buffers of kernels and NCCL take the rest."""
    flops: float = 0.4
    """Share of the TFLOP/s that training and prefill reach."""
    streaming: float = 0.6
    """Share of the memory bandwidth that decoding reaches, and of the link bandwidth that collectives reach."""
    overhead: float = 0.005
    """Seconds of a decoding step outside its arithmetic: scheduling, launches, sampling."""

    def __post_init__(self) -> None:
        require_positive(self, "overhead")
        for name in ("usable", "flops", "streaming"):
            if getattr(self, name) > 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it is a share, at most 1")
