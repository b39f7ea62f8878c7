"""Weights of Hugging Face folders: read, and translated to and from the fused ones of a decoder."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from orgthink.models.model_files import indexed_weights
from orgthink.util.errors import explained
from orgthink.util.files import require_file_to_read

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
    """The tensors of a folder: of model.safetensors or else of the files that an index names, as in transformers; or of
    all safetensors files. ValueError for a file that cannot be read."""
    named = {whole.name} if (whole := folder / "model.safetensors").exists() else indexed_weights(folder)
    files = [folder / name for name in sorted(named)] or sorted(folder.glob("*.safetensors"))
    return {name: weight for file in files for name, weight in read_tensors(file).items()}


def read_tensors(file: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file. ValueError if it is missing or damaged, or if they are no weights."""
    with explained(f"{file} cannot be read", SafetensorError, OSError, MemoryError, by=ValueError):
        require_file_to_read(file)
        weights = load_file(file)
    for name, weight in weights.items():
        if not weight.is_floating_point():  # a model in floating point would take them silently
            raise ValueError(f"{file}: {name} has numbers of type {str(weight.dtype).removeprefix('torch.')}")
    require_finite(weights, file)
    return weights


def require_finite(weights: Mapping[str, Tensor], source: Path) -> None:
    """ValueError for weights with numbers that are not finite, as of a damaged file or of a training that diverged."""
    for name, weight in weights.items():
        if weight.itemsize > 1 and not weight.isfinite().all():  # torch does not know this of numbers of 8 bits
            raise ValueError(f"{source}: {name} has numbers that are not finite")


def from_hf(
    own: Mapping[str, Tensor], weights: Mapping[str, Tensor], qkv_rows: Sequence[int], *, gemma: bool
) -> dict[str, Tensor]:
    """New weights in place of a decoder's `own`, from those under Hugging Face names. KeyError for one that is missing,
    RuntimeError for one of another shape, or that has no place in the decoder."""
    wanted = to_hf(own, qkv_rows, gemma=gemma)
    for name, weight in wanted.items():
        if weights[name].shape != weight.shape:
            raise RuntimeError(f"{name} has the shape {tuple(weights[name].shape)} in place of {tuple(weight.shape)}")
    if unknown := [name for name in weights if name not in wanted and not _UNUSED.search(name)]:
        raise RuntimeError(f"{unknown[0]} has no place in the model")
    head, embedding = _OUTER["head.weight"], _OUTER["embedding.weight"]
    if head in weights.keys() - wanted.keys() and not torch.equal(weights[head], weights[embedding]):
        raise RuntimeError(f"tie_word_embeddings is true, but {head} is not {embedding}")
    parts = {name: [weights[part] for part in _parts(name, gemma)] for name in own}
    return {name: torch.cat(some) if len(some) > 1 else some[0] for name, some in parts.items()}


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
