"""The data type that a processor computes a model in fastest."""

from __future__ import annotations

from pathlib import Path

import torch

LARGE = 100_000_000
"""Bytes of weights from which the data type matters. Smaller models compute in float32, so that their results do not
depend on the machine."""


def computes_bfloat16_fast(device: str) -> bool:
    """Whether matrix products in bfloat16 are faster than in float32: on a GPU, and on a CPU with AMX. Other CPUs, also
    those with AVX-512 instructions for bfloat16, took 1.7 times as long as in float32."""
    if torch.device(device).type == "cpu":
        return torch.cpu._is_amx_tile_supported()
    return True


def fastest_dtype(folder: Path, device: str) -> torch.dtype:
    """The data type to sample the model of a folder in."""
    return torch.bfloat16 if is_large(folder) and computes_bfloat16_fast(device) else torch.float32


def is_large(folder: Path) -> bool:
    """Whether a folder has at least `LARGE` bytes of weights."""
    return sum(file.stat().st_size for file in folder.glob("*.safetensors")) >= LARGE
