"""Rotary positions: plain, and stretched to longer texts (`linear`, `llama3`, `yarn`)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

KINDS = ("default", "linear", "llama3", "yarn")
"""Values of `rope_type` that are implemented."""


@dataclass(frozen=True, slots=True)
class Rope:
    """The rotary parameters of a `config.json`."""

    theta: float = 10_000.0
    """Base of the wavelengths."""
    kind: str = "default"
    """One of `KINDS`."""
    factor: float = 1.0
    """How many times longer texts become."""
    original: float = 0.0
    """Tokens of the longest text before that."""
    low: float = 1.0
    """`llama3`: wavelengths that fit fewer than `low` times into the original length are stretched."""
    high: float = 4.0
    """`llama3`: those that fit more than `high` times stay."""
    beta_fast: float = 32.0
    """`yarn`: wavelengths that fit more than so many times into the original length stay."""
    beta_slow: float = 1.0
    """`yarn`: those that fit fewer than so many times are stretched."""
    attention_factor: float | None = None
    """`yarn`: factor of cosine and sine; `None`: 0.1 ln(factor) + 1."""
    truncate: bool = True
    """`yarn`: whether the two borders are rounded to whole dimensions."""


PLAIN = Rope()


def frequencies(rope: Rope, size: int) -> Tensor:
    """[D / 2]: radians a position, for heads of size D. Rounded as in transformers, because the position multiplies
    the rounding error."""
    plain = 1.0 / (rope.theta ** (torch.arange(0, size, 2, dtype=torch.float32) / size))
    if rope.kind == "linear":
        return plain / rope.factor
    if rope.kind == "llama3":
        return _llama3(rope, plain)
    if rope.kind == "yarn":
        return _yarn(rope, size)
    return plain


def _llama3(rope: Rope, plain: Tensor) -> Tensor:
    """Long wavelengths are stretched, short ones stay, and between them lies a blend."""
    wavelengths = 2 * math.pi / plain
    blend = (rope.original / wavelengths - rope.low) / (rope.high - rope.low)
    stretched = torch.where(wavelengths > rope.original / rope.low, plain / rope.factor, plain)
    between = (wavelengths >= rope.original / rope.high) & (wavelengths <= rope.original / rope.low)
    return torch.where(between, (1 - blend) * stretched / rope.factor + blend * stretched, stretched)


def _yarn(rope: Rope, size: int) -> Tensor:
    """The same with a linear blend over the dimensions (arXiv 2309.00071)."""
    powers = rope.theta ** (torch.arange(0, size, 2).to(torch.float32) / size)

    def border(rotations: float) -> float:
        return size * math.log(rope.original / (rotations * 2 * math.pi)) / (2 * math.log(rope.theta))

    first, last = border(rope.beta_fast), border(rope.beta_slow)
    if rope.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, size - 1)
    ramp = (torch.arange(size // 2, dtype=torch.float32) - first) / ((last - first) or 0.001)
    stays = 1 - ramp.clamp(0, 1)
    return 1.0 / (rope.factor * powers) * (1 - stays) + 1.0 / powers * stays


class Rotary(nn.Module):
    """Cosine and signed sine of positions: see `rotate`.

    They come from a table. Computed for each batch, some would differ in the last bit from batch to batch.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, rope: Rope, size: int, longest: int) -> None:
        """For heads of size D and the first `longest` positions."""
        super().__init__()
        scale = 1.0
        if rope.kind == "yarn":
            plain = 0.1 * math.log(rope.factor) + 1.0 if rope.factor > 1 else 1.0
            scale = plain if rope.attention_factor is None else rope.attention_factor
        angles = torch.outer(torch.arange(longest, dtype=torch.float32), frequencies(rope, size))
        cos, sin = angles.cos() * scale, angles.sin() * scale
        self.register_buffer("cos", torch.cat([cos, cos], -1), persistent=False)
        self.register_buffer("sin", torch.cat([-sin, sin], -1), persistent=False)

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """[..., 1, D] each for positions [...]; the axis of size 1 stands for the heads."""
        return self.cos[positions].unsqueeze(-2), self.sin[positions].unsqueeze(-2)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of [..., D] by tables that broadcast to it."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)
