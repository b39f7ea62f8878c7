"""Weights of Hugging Face folders: read, and translated to and from the fused ones of a decoder."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from orgthink.util.errors import explained

_OUTER = {
    "embedding.weight": "model.embed_tokens.weight",
    "norm.weight": "model.norm.weight",
    "head.weight": "lm_head.weight",
}

_NAMES = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "output": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
    "attention_norm": ("input_layernorm",),
    "mlp_norm": ("post_attention_layernorm",),
    "query_norm": ("self_attn.q_norm",),
    "key_norm": ("self_attn.k_norm",),
}
"""Our modules of a layer, and those of Hugging Face's models that each consists of."""

_GEMMA = _NAMES | {
    "after_attention": ("post_attention_layernorm",),
    "mlp_norm": ("pre_feedforward_layernorm",),
    "after_mlp": ("post_feedforward_layernorm",),
}

_UNUSED = re.compile(r"rotary_emb\.inv_freq$|^lm_head\.weight$")
"""Weights that a folder may hold in vain: old ones, and the copy of a tied head."""


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of all safetensors files of a folder. ValueError for a file that cannot be read."""
    weights: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        if not file.is_file():  # a pipe would be waited for
            raise ValueError(f"{file} is not a file")
        with explained(f"{file} cannot be read", SafetensorError, MemoryError, by=ValueError):
            weights |= load_file(file)
    require_finite(weights, folder)
    return weights


def require_finite(weights: Mapping[str, Tensor], source: Path) -> None:
    """ValueError for weights with numbers that are not finite, as of a damaged file or of a training that diverged."""
    for name, weight in weights.items():
        if weight.itemsize > 1 and not weight.isfinite().all():  # torch does not know this of numbers of 8 bits
            raise ValueError(f"{source}: {name} has numbers that are not finite")


def from_hf(names: Iterable[str], weights: Mapping[str, Tensor], *, gemma: bool) -> dict[str, Tensor]:
    """The weights of a decoder with these `names`, from those under Hugging Face names. KeyError for one that is
    missing, RuntimeError for one that has no place in the decoder."""
    state, used = dict[str, Tensor](), set[str]()
    for name in names:
        theirs = _parts(name, gemma)
        parts = [weights[part] for part in theirs]
        state[name] = torch.cat(parts) if len(parts) > 1 else parts[0]
        used.update(theirs)
    if unknown := [name for name in weights if name not in used and not _UNUSED.search(name)]:
        raise RuntimeError(f"{unknown[0]} has no place in the model")
    return state


def to_hf(state: Mapping[str, Tensor], qkv_rows: Sequence[int], *, gemma: bool) -> dict[str, Tensor]:
    """The weights of a decoder under Hugging Face names. `qkv_rows`: rows of its queries, keys and values."""
    weights: dict[str, Tensor] = {}
    for name, weight in state.items():
        theirs = _parts(name, gemma)
        sizes = list(qkv_rows) if len(theirs) == 3 else [len(weight) // len(theirs)] * len(theirs)
        weights |= {part: rows.contiguous() for part, rows in zip(theirs, weight.split(sizes), strict=True)}
    return weights


def parts_of(module: str, rows: int, qkv_rows: Sequence[int]) -> dict[str, int]:
    """The Hugging Face names of the layers that a linear layer of a decoder fuses, and the output rows of each."""
    names = [part.removesuffix(".weight") for part in _parts(f"{module}.weight", False)]
    return dict(zip(names, qkv_rows if len(names) == 3 else [rows // len(names)] * len(names), strict=True))


def _parts(name: str, gemma: bool) -> tuple[str, ...]:
    """The Hugging Face names of what a weight of a decoder consists of."""
    if name in _OUTER:
        return (_OUTER[name],)
    _, layer, module, kind = name.split(".")
    return tuple(f"model.layers.{layer}.{part}.{kind}" for part in (_GEMMA if gemma else _NAMES)[module])
