"""Low-rank adapters (LoRA) of a decoder's linear layers, in the file format of PEFT."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from orgthink.models.weights import read_tensors

ADAPTER = "adapter"
"""Subfolder of a model folder that holds the adapter. The model's weights have it merged in."""

_WEIGHTS = "adapter_model.safetensors"

_PREFIX = "base_model.model."
"""What PEFT writes before the names of a model's modules."""


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """A low-rank adapter that is trained instead of the weights."""

    rank: int
    """Rank of the update of each weight matrix."""
    alpha: float = 32.0
    """Numerator of the update's scale, alpha / rank."""
    dropout: float = 0.0
    """Dropout rate on the adapter's input. Reinforcement learning needs 0, because the sampler has no dropout."""
    targets: tuple[str, ...] = ()
    """Last parts of the names of the adapted layers, such as `q_proj`; empty: every linear layer except the head."""

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"the LoRA rank is {self.rank}: it must be at least 1")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"the LoRA dropout is {self.dropout}: it must be in [0, 1)")

    def adapts(self, module: str) -> bool:
        """Whether the layer with this name gets an adapter."""
        return not self.targets or module.rpartition(".")[2] in self.targets


class Lora(nn.Module):
    """The change B A x · alpha / rank of a linear layer, or of some of the layers that it fuses.

    `down` holds the matrices A of all adapted parts, so that the input is read once; `up` holds the matrix B of each.
    """

    def __init__(
        self, parts: Mapping[str, int], width: int, settings: LoraSettings, generator: torch.Generator
    ) -> None:
        """`parts`: output rows of each fused layer by its name. As in PEFT, A is uniform and B is 0 at first."""
        super().__init__()
        self.parts = dict(parts)
        self.names = [name for name in parts if settings.adapts(name)]
        self.rank, self.scale, self.dropout = settings.rank, settings.alpha / settings.rank, settings.dropout
        down = torch.empty(len(self.names) * settings.rank, width)
        self.down = nn.Parameter(down.uniform_(-(width**-0.5), width**-0.5, generator=generator))
        self.up = nn.ParameterList([torch.zeros(parts[name], settings.rank) for name in self.names])

    def forward(self, x: Tensor, output: Tensor) -> Tensor:
        """The output with its change, given the input and the output [..., rows] of the layer, which is overwritten."""
        spans = spans_of(self.parts, self.names)
        return _Changed.apply(output, F.dropout(x, self.dropout), self.scale, spans, self.down, *self.up)

    def change(self) -> Tensor:
        """What it adds to the weights of its layer, in the shape of these."""
        changes = {name: up @ down for name, down, up in self.matrices()}
        width = self.down.shape[1]
        return self.scale * torch.cat(
            [changes.get(name, self.down.new_zeros(rows, width)) for name, rows in self.parts.items()]
        )

    def matrices(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        """Name, A and B of each adapted layer."""
        return zip(self.names, self.down.split(self.rank), self.up, strict=True)


class RoleAdapters(nn.ModuleDict):
    """The adapters of a layer by role, one of which is trained at a time."""

    used = ""
    """Role whose adapter the next pass uses."""

    def forward(self, x: Tensor, output: Tensor) -> Tensor:
        return self[self.used](x, output)


def spans_of(parts: Mapping[str, int], names: Iterable[str]) -> list[slice]:
    """Output rows of these parts of a fused layer."""
    last = dict(zip(parts, accumulate(parts.values()), strict=True))
    return [slice(last[name] - parts[name], last[name]) for name in names]


class _Changed(torch.autograd.Function):
    """Adds the change to the output in place, part by part: a sum of whole outputs takes as long as the products."""

    @staticmethod
    def forward(
        ctx: Any, output: Tensor, x: Tensor, scale: float, spans: Sequence[slice], down: Tensor, *ups: Tensor
    ) -> Tensor:
        flat, rows = x.reshape(-1, x.shape[-1]).to(output.dtype), output.view(-1, output.shape[-1])
        inner = F.linear(flat, down.to(output.dtype)).split(ups[0].shape[1], -1)
        for span, part, up in zip(spans, inner, ups, strict=True):
            rows[:, span].addmm_(part, up.to(output.dtype).T, alpha=scale)
        ctx.save_for_backward(x, down, *ups, *inner)
        ctx.scale, ctx.spans = scale, spans
        ctx.mark_dirty(output)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gradient, (x, down, *rest) = gradients[0], ctx.saved_tensors
        rows, flat = gradient.reshape(-1, gradient.shape[-1]), x.reshape(-1, x.shape[-1]).to(gradient.dtype)
        ups, inner = rest[: len(ctx.spans)], rest[len(ctx.spans) :]
        parts = [rows[:, span] for span in ctx.spans]
        of_inner = torch.cat([part @ up.to(part.dtype) for part, up in zip(parts, ups, strict=True)], -1) * ctx.scale
        of_ups = [ctx.scale * (part.T @ own) for part, own in zip(parts, inner, strict=True)]
        return gradient, (of_inner @ down.to(of_inner.dtype)).view_as(x), None, None, of_inner.T @ flat, *of_ups


def peft_name(layer: str, side: str) -> str:
    """PEFT's name of the matrix A or B of a layer."""
    return f"{_PREFIX}{layer}.lora_{side}.weight"


@dataclass(frozen=True, slots=True)
class Adapter:
    """The weights of an adapter."""

    settings: LoraSettings
    """Its rank and scale."""
    weights: Mapping[str, Tensor]
    """Matrices A and B of its layers, under PEFT's names."""

    def matrix(self, layer: str, side: str, shape: tuple[int, int]) -> Tensor:
        """A or B of a layer; 0 without one. ValueError for another shape."""
        name = peft_name(layer, side)
        found = self.weights.get(name)
        if found is not None and found.shape != shape:
            raise ValueError(f"{name} has the shape {tuple(found.shape)}, and the model needs {shape}")
        return torch.zeros(shape) if found is None else found


def matrices_of(adapters: Iterable[Lora]) -> dict[str, Tensor]:
    """The matrices of all layers under PEFT's names."""
    each = [matrices for one in adapters for matrices in one.matrices()]
    return {peft_name(name, side): one for name, *pair in each for side, one in zip("AB", pair, strict=True)}


def write_adapter(folder: Path, adapters: Sequence[Lora], settings: LoraSettings, base: str) -> None:
    """Write an adapter of the model `base` in PEFT's format."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: matrix.detach().contiguous() for name, matrix in matrices_of(adapters).items()}
    save_file(weights, folder / _WEIGHTS, metadata={"format": "pt"})
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": settings.rank,
        "lora_alpha": settings.alpha,
        "lora_dropout": settings.dropout,
        "target_modules": sorted({name.rpartition(".")[2] for one in adapters for name in one.names}),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")


@torch.no_grad()
def read_adapter(folder: Path, adapters: Sequence[Lora]) -> None:
    """Load the weights of an adapter with the same layers and rank. ValueError for another one."""
    file = folder / _WEIGHTS
    weights, wanted = read_tensors(file), matrices_of(adapters)
    if {name: x.shape for name, x in weights.items()} != {name: x.shape for name, x in wanted.items()}:
        raise ValueError(f"{file} holds another adapter: its layers or its rank are not those of this model")
    for name, matrix in wanted.items():
        matrix.copy_(weights[name])
