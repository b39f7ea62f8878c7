"""The data type and the library that a processor computes a model in fastest."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

LARGE = 100_000_000
"""Bytes of weights from which the data type matters. Smaller models compute in float32, so that their results do not
depend on the machine."""
LARGE_MATRIX = 2**19
"""Numbers of a weight matrix from which the library matters: a call of oneDNN takes some 10 µs more."""
_CPUINFO = Path("/proc/cpuinfo")


def computes_bfloat16_fast(device: str) -> bool:
    """Whether matrix products in bfloat16 are faster than in float32: on a GPU, and on a CPU with instructions for it,
    AMX or AVX-512's (2 to 2.9 times as fast on an AMD EPYC of the fourth generation). Other CPUs are slower in it."""
    if torch.device(device).type == "cpu":
        return torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
    return True


def fastest_dtype(folder: Path, device: str) -> torch.dtype:
    """The data type to sample the model of a folder in."""
    return torch.bfloat16 if is_large(folder) and computes_bfloat16_fast(device) else torch.float32


def is_large(folder: Path) -> bool:
    """Whether a folder has at least `LARGE` bytes of weights."""
    return sum(file.stat().st_size for file in folder.glob("*.safetensors")) >= LARGE


def linear_map(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """As `F.linear`, while sampling by the library that is faster for these weights, however many rows `x` has.

    Trainings, which need gradients, are left to `F.linear`: their products gain less.
    """
    large = weight.device.type == "cpu" and weight.numel() >= LARGE_MATRIX and torch.is_inference_mode_enabled()
    if large and x.dtype == weight.dtype == torch.float32 and prefers_onednn():
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return F.linear(x, weight, bias)


@cache
def prefers_onednn() -> bool:
    """Whether oneDNN multiplies float32 matrices faster than `F.linear`. That uses MKL, which on AMD's processors
    copies the weights in each call: a step of 64 rows of SmolLM2-135M took 1.2 times as long."""
    maker = _CPUINFO.read_text(errors="replace") if _CPUINFO.is_file() else platform.processor()
    has_both = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    return "AuthenticAMD" in maker and has_both and hasattr(torch.ops.mkldnn, "_linear_pointwise")
