"""The sizes of a model: parameters, bytes and operations, from its config.json."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orgthink.engines import shipped
from orgthink.models.config import SIZES, DecoderConfig
from orgthink.models.hub import is_hub_id, resolve
from orgthink.models.rotary import Rope
from orgthink.util.errors import UserError, pick
from orgthink.util.tabular import json_object

QWEN3_4B = DecoderConfig(
    vocab_size=151_936,
    hidden_size=2560,
    intermediate_size=9728,
    num_hidden_layers=36,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    max_position_embeddings=40_960,
    rope=Rope(1_000_000.0),
    tie_word_embeddings=True,
)
"""The architecture of Qwen3-4B: 4.0 billion weights."""

QWEN3_30B_A3B: dict[str, Any] = {
    "vocab_size": 151_936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "max_position_embeddings": 262_144,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000_000.0},
    "tie_word_embeddings": False,
}
"""The architecture of Qwen3-30B-A3B-Thinking-2507, as transformers names it: 30.5 billion weights, 128 experts."""


def require_known(name: str, known: Sequence[str]) -> None:
    """UserError with a suggestion unless this is one of these names, a file or a folder."""
    if not (Path(name).exists() or shipped(name) or is_hub_id(name)):
        pick("recipe or model", name, dict.fromkeys(known))


def known_models() -> dict[str, Mapping[str, Any]]:
    """config.json of models that are known without their files: the entries that decide sizes."""

    def dense(layers: int, hidden: int, inner: int, heads: int, *, tied: bool = False) -> dict[str, Any]:
        shape = {"num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": inner}
        return _entries(replace(QWEN3_4B, **shape, num_attention_heads=heads, tie_word_embeddings=tied))

    return {
        "qwen3-0.6b": dense(28, 1024, 3072, 16, tied=True),
        "qwen3-1.7b": dense(28, 2048, 6144, 16, tied=True),
        "qwen3-4b": _entries(QWEN3_4B),
        "qwen3-4b-2507": _entries(replace(QWEN3_4B, max_position_embeddings=262_144)),
        "qwen3-8b": dense(36, 4096, 12_288, 32),
        "qwen3-14b": dense(40, 5120, 17_408, 40),
        "qwen3-32b": dense(64, 5120, 25_600, 64),
        "qwen3-30b-a3b": QWEN3_30B_A3B,
        "qwen3-235b-a22b": QWEN3_30B_A3B
        | {"num_hidden_layers": 94, "hidden_size": 4096, "moe_intermediate_size": 1536, "num_attention_heads": 64},
    }


def _entries(config: DecoderConfig) -> dict[str, Any]:
    """The entries of a config.json that decide sizes."""
    return {name: getattr(config, name) for name in (*SIZES, "tie_word_embeddings")}


def config_of(model: str) -> Mapping[str, Any]:
    """Contents of a model's config.json, by its name, folder or file. UserError if it cannot be read."""
    if model in (known := known_models()):
        return known[model]
    file = shipped(model) or resolve(model, weights=False) or Path(model)
    require_known(str(file), list(known))
    return json_object(file / "config.json" if file.is_dir() else file)


@dataclass(frozen=True, slots=True)
class Model:
    """The shape of a Qwen3, dense or a mixture of experts."""

    layers: int
    """Layers."""
    hidden: int
    """C: width of the residual stream."""
    heads: int
    """H: query heads."""
    kv_heads: int
    """K: key and value heads."""
    head_dim: int
    """D: width of a head."""
    inner: int
    """I: inner width of the MLP, or of each expert."""
    vocab: int
    """V: tokens of the vocabulary."""
    tied: bool
    """Whether embedding and head are one matrix."""
    experts: int = 1
    """E: experts of a layer; 1 is a dense model, which has no router."""
    active_experts: int = 1
    """k: experts that each token uses."""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Model:
        """From the contents of a Hugging Face config.json. UserError for another architecture."""
        kind = config.get("model_type", "qwen3_moe" if "num_experts" in config else "qwen3")
        if kind not in ("qwen3", "qwen3_moe") or config.get("attention_bias"):
            raise UserError(f"sizing supports qwen3 and qwen3_moe models without biases, not {kind}")
        if config.get("mlp_only_layers") or config.get("decoder_sparse_step", 1) != 1:
            raise UserError("sizing supports models with identical layers: some layers of this one have no experts")
        experts = kind == "qwen3_moe"
        names = {
            "layers": "num_hidden_layers",
            "hidden": "hidden_size",
            "heads": "num_attention_heads",
            "kv_heads": "num_key_value_heads",
            "head_dim": "head_dim",
            "inner": "moe_intermediate_size" if experts else "intermediate_size",
            "vocab": "vocab_size",
            **({"experts": "num_experts", "active_experts": "num_experts_per_tok"} if experts else {}),
        }
        sizes: dict[str, Any] = {ours: config.get(theirs) for ours, theirs in names.items()}
        if wrong := [names[ours] for ours, size in sizes.items() if not isinstance(size, int) or size < 1]:
            raise UserError(f"the model's config.json has no {', '.join(wrong)}: write it as an integer above 0")
        return cls(**sizes, tied=bool(config.get("tie_word_embeddings", False)))

    def _weights(self, experts: float) -> float:
        """Parameters of all layers with so many experts: C(H + 2K)D + HDC + 3CI an expert, norms 2C + 2D, router CE."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        norms = 2 * self.hidden + 2 * self.head_dim
        router = self.hidden * self.experts if self.experts > 1 else 0
        return self.layers * (attention + norms + router + experts * 3 * self.hidden * self.inner)

    @property
    def embedding(self) -> int:
        """Parameters of the embedding, and of the head: V·C."""
        return self.vocab * self.hidden

    def weights_of(self, experts: float) -> float:
        """Parameters of a model with so many experts in each layer."""
        return self._weights(experts) + self.embedding * (1 if self.tied else 2) + self.hidden

    @property
    def total(self) -> int:
        """Parameters."""
        return int(self.weights_of(self.experts))

    @property
    def active(self) -> int:
        """Active parameters of one token: k of the E experts of each layer."""
        return int(self.weights_of(self.active_experts))

    @property
    def multiplied(self) -> int:
        """Parameters in the matrix products of a token: the active ones, without the input embedding."""
        return self.active - (0 if self.tied else self.embedding)

    @property
    def largest(self) -> int:
        """Parameters of the largest unit that sharded training gathers: a layer, or the embedding."""
        return max(int(self._weights(self.experts)) // self.layers, self.embedding)

    def read(self, tokens: float) -> float:
        """Parameters that a forward pass of so many tokens reads.

        Of the experts, E·(1 − (1 − k/E)^tokens): assumes that tokens choose experts independently and uniformly.
        """
        touched = self.experts * (1 - (1 - self.active_experts / self.experts) ** tokens) if self.experts > 1 else 1
        return self.weights_of(touched) - (0 if self.tied else self.embedding)

    def kv_bytes(self, width: int, tensor: int = 1) -> int:
        """Bytes of keys and values of one token: 2·layers·K·D·width, on one of `tensor` GPUs that share the heads.

        Heads are not split: with more GPUs than heads, some GPUs hold the same head.
        """
        return 2 * self.layers * math.ceil(self.kv_heads / tensor) * self.head_dim * width

    def activation_bytes(self, width: int) -> int:
        """Bytes that a layer stores for the backward pass of a token: (6C + 4(H + K)D + 4I·k + C·k to dispatch)·width.

        Counted in the model of `engines/local` with fused attention: input, normed and scaled input of two norms; three
        times queries and keys, values, output of attention; gate, up, silu and product. Other kernels differ.
        """
        attention = 4 * (self.heads + self.kv_heads) * self.head_dim
        dispatched = self.active_experts * self.hidden if self.experts > 1 else 0
        return (6 * self.hidden + attention + 4 * self.inner * self.active_experts + dispatched) * width
