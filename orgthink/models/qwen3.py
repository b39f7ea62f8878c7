"""A dense Qwen3-architecture model in plain torch: the model of the local engine and of the trainer.

Query, key and value weights are kept fused, and gate and up; `from_hf` and `to_hf` translate to the names
of Hugging Face folders, so vLLM, transformers and TRL open the same files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from orgthink.models.tree_attention import Rectangle, tree_attention
from orgthink.util.tabular import json_object

# Shapes: B batch, T tokens, R rectangles, C hidden, H query heads, K key/value heads, D head size, V vocabulary.


LARGEST = 1 << 24
"""Largest size in a config.json: a larger one is damage, and would take all memory."""


@dataclass(frozen=True, slots=True)
class Qwen3Config:
    """The fields of `config.json` that determine the computation."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10_000.0
    tie_word_embeddings: bool = True

    @classmethod
    def load(cls, folder: Path) -> Qwen3Config:
        """Read `config.json`; ValueError if it describes another architecture."""
        raw = json_object(folder / "config.json")
        if raw.get("architectures") != ["Qwen3ForCausalLM"] or raw.get("use_sliding_window"):
            raise ValueError(f"{folder} holds {raw.get('architectures')}: the local engine runs dense Qwen3 models")
        rope = raw.get("rope_parameters") or raw
        if rope.get("rope_type", "default") != "default" or raw.get("rope_scaling"):
            raise ValueError(f"{folder} scales its rotary positions, which the local engine does not")
        given: dict[str, Any] = {name: raw[name] for name in cls.__slots__ if name in raw}
        missing = {field.name for field in fields(cls) if field.default is MISSING} - given.keys()
        if missing:
            raise ValueError(f"{folder / 'config.json'} lacks {', '.join(sorted(missing))}")
        given["rope_theta"] = rope.get("rope_theta", 10_000.0)
        for field in fields(cls):
            value = given.get(field.name, field.default)
            whole, real = type(value) is int and 1 <= value <= LARGEST, type(value) in (int, float) and value > 0
            if field.type != "bool" and not (whole if field.type == "int" else real):
                wanted = f"a whole number from 1 to {LARGEST:,}" if field.type == "int" else "a number above 0"
                raise ValueError(f"{folder / 'config.json'}: {field.name} is {value!r}: it must be {wanted}")
        return cls(**given | {"rope_theta": float(given["rope_theta"])})

    @property
    def fewest_parameters(self) -> int:
        """Those of the embedding and the MLPs alone."""
        return self.hidden_size * (self.vocab_size + 3 * self.num_hidden_layers * self.intermediate_size)

    def save(self, folder: Path, *, eos_token_id: int, pad_token_id: int, dtype: str = "float32") -> None:
        """Write a `config.json` that transformers and vLLM open."""
        raw = asdict(self)
        rope = {"rope_type": "default", "rope_theta": raw.pop("rope_theta")}
        raw |= {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "hidden_act": "silu",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "use_sliding_window": False,
            "rope_parameters": rope,
            "dtype": dtype,
            "eos_token_id": eos_token_id,
            "pad_token_id": pad_token_id,
        }
        (folder / "config.json").write_text(json.dumps(raw, indent=2) + "\n")


def rotary_tables(config: Qwen3Config) -> tuple[Tensor, Tensor]:
    """cos and signed sin of each position, [T, D] each: see `rotate`.

    Frequencies are rounded as in transformers, because the position multiplies their rounding error.
    """
    half = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    frequencies = 1.0 / config.rope_theta**half
    angles = torch.outer(torch.arange(config.max_position_embeddings, dtype=torch.float32), frequencies)
    return angles.cos().repeat(1, 2), torch.cat([-angles.sin(), angles.sin()], -1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of [..., D] by tables that broadcast to it."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Attention of one layer over cached sequences: see `Qwen3.decode`."""


class Layer(nn.Module):
    """Attention and MLP, each with its norm before and its residual around."""

    def __init__(self, config: Qwen3Config) -> None:
        super().__init__()
        heads = (config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads)
        self.heads, self.head_dim = heads, config.head_dim
        width, eps = config.hidden_size, config.rms_norm_eps
        self.qkv = nn.Linear(width, sum(heads) * config.head_dim, bias=False)
        self.output = nn.Linear(heads[0] * config.head_dim, width, bias=False)
        self.gate_up = nn.Linear(width, 2 * config.intermediate_size, bias=False)
        self.down = nn.Linear(config.intermediate_size, width, bias=False)
        self.attention_norm = nn.RMSNorm(width, eps)
        self.mlp_norm = nn.RMSNorm(width, eps)
        self.query_norm = nn.RMSNorm(config.head_dim, eps)
        self.key_norm = nn.RMSNorm(config.head_dim, eps)

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of [..., C]: [..., heads, D] each, normed and rotated."""
        query, key, value = self.heads
        qkv = self.qkv(self.attention_norm(x)).unflatten(-1, (-1, self.head_dim))
        qk, v = qkv.split((query + key, value), -2)
        scale = torch.cat([self.query_norm.weight.expand(query, -1), self.key_norm.weight.expand(key, -1)])
        qk = rotate(F.rms_norm(qk, qk.shape[-1:], eps=self.query_norm.eps) * scale, cos, sin)
        q, k = qk.split((query, key), -2)
        return q, k, v

    def mlp(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
        return self.down(F.silu(gate) * up)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, rectangles: Sequence[Rectangle] | None = None) -> Tensor:
        q, k, v = (heads.transpose(1, 2) for heads in self.project(x, cos, sin))
        if rectangles is None:
            grouped = q.shape[1] != k.shape[1]
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
        else:
            mixed = tree_attention(q, k, v, rectangles)
        x = x + self.output(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(x)


class Qwen3(nn.Module):
    """Token ids in, logits out."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: Qwen3Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        layers = [Layer(config) for _ in range(config.num_hidden_layers)]
        self.layers: list[Layer] = nn.ModuleList(layers)  # type: ignore[assignment]
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.head = None if config.tie_word_embeddings else nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        cos, sin = rotary_tables(config)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    @property
    def device(self) -> torch.device:
        return self.norm.weight.device

    def initialise(self, generator: torch.Generator) -> None:
        """From-scratch weights: normal 0.02, scaled down by depth where residuals add up."""
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                scaled = name.endswith(("output.weight", "down.weight"))
                std = 0.02 / (2 * len(self.layers)) ** 0.5 if scaled else 0.02
                nn.init.normal_(weight, std=0.05 if "embedding" in name else std, generator=generator)

    def hidden(self, ids_BT: Tensor, positions_BT: Tensor | None = None, rectangles_R4: Tensor | None = None) -> Tensor:
        """Final hidden states [B, T, C].

        By default rows are right-padded and attention is causal, so padding is not visible. Packed rows are one row,
        B = 1, and need the position of each token in its own text and the rectangles of visible pairs: see
        `tree_attention.rectangles_of`.
        """
        where = slice(ids_BT.shape[1]) if positions_BT is None else positions_BT
        cos, sin = self.cos[where].unsqueeze(-2), self.sin[where].unsqueeze(-2)
        rectangles = None if rectangles_R4 is None else rectangles_R4.tolist()
        x = self.embedding(ids_BT)
        for layer in self.layers:
            x = layer(x, cos, sin, rectangles)
        return self.norm(x)

    def decode(self, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Final hidden states [..., C] of new tokens [...], each at its position of a sequence.

        `attend` gets the index of a layer and its queries, keys and values [..., heads, D]; it stores keys and values
        and returns the attention output over the whole sequence so far, [..., H, D].
        """
        cos, sin = self.cos[positions].unsqueeze(-2), self.sin[positions].unsqueeze(-2)
        x = self.embedding(ids)
        for i, layer in enumerate(self.layers):
            x = x + layer.output(attend(i, *layer.project(x, cos, sin)).flatten(-2))
            x = x + layer.mlp(x)
        return self.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., C] → [..., V]."""
        return F.linear(hidden, self.embedding.weight if self.head is None else self.head.weight)

    def forward(self, ids_BT: Tensor) -> Tensor:
        return self.logits(self.hidden(ids_BT))

    @classmethod
    def load(cls, folder: Path, dtype: torch.dtype = torch.float32) -> Qwen3:
        """Open a Hugging Face folder (one or several safetensors files).

        ValueError if a file is missing, corrupt or holds another model.
        """
        config = Qwen3Config.load(folder)
        weights: dict[str, Tensor] = {}
        for file in sorted(folder.glob("*.safetensors")):
            if not file.is_file():  # a pipe would be waited for
                raise ValueError(f"{file} is not a file")
            try:
                weights |= load_file(file)
            except (SafetensorError, MemoryError) as error:
                raise ValueError(f"{file} cannot be read: {error}") from error
        if config.fewest_parameters > sum(weight.numel() for weight in weights.values()):
            raise ValueError(f"{folder} lacks the weights of a model as large as its config.json says")
        model = cls(config).to(dtype)
        try:
            model.from_hf(weights)
        except KeyError as error:
            raise ValueError(f"{folder} lacks the weights {error}") from error
        except RuntimeError as error:
            raise ValueError(f"{folder}: its weights are not those of its config.json: {error}") from error
        return model

    def save(self, folder: Path) -> None:
        save_file(self.to_hf(), folder / "model.safetensors", metadata={"format": "pt"})

    def restore(self, folder: Path) -> None:
        """Load weights that `save` wrote. ValueError for a model of another shape."""
        other = Qwen3.load(folder)
        if other.config != self.config:
            raise ValueError(f"{folder} holds a model of another shape: {other.config} instead of {self.config}")
        self.load_state_dict(other.state_dict())

    def from_hf(self, weights: Mapping[str, Tensor]) -> None:
        """Copy weights with Hugging Face names into this model."""
        state = {"embedding.weight": weights["model.embed_tokens.weight"], "norm.weight": weights["model.norm.weight"]}
        if self.head is not None:
            state["head.weight"] = weights["lm_head.weight"]
        for i in range(len(self.layers)):
            for ours, theirs in _NAMES.items():
                parts = [weights[f"model.layers.{i}.{name}.weight"] for name in theirs]
                state[f"layers.{i}.{ours}.weight"] = torch.cat(parts) if len(parts) > 1 else parts[0]
        self.load_state_dict(state)

    def to_hf(self) -> dict[str, Tensor]:
        """Weights under Hugging Face names."""
        state = self.state_dict()
        weights = {"model.embed_tokens.weight": state["embedding.weight"], "model.norm.weight": state["norm.weight"]}
        if self.head is not None:
            weights["lm_head.weight"] = state["head.weight"]
        for i, layer in enumerate(self.layers):
            for ours, theirs in _NAMES.items():
                weight = state[f"layers.{i}.{ours}.weight"]
                rows = [n * layer.head_dim for n in layer.heads] if ours == "qkv" else len(weight) // len(theirs)
                for name, part in zip(theirs, weight.split(rows), strict=True):
                    weights[f"model.layers.{i}.{name}.weight"] = part.contiguous()
        return weights


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
