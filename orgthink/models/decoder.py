"""A decoder in plain torch, by its configuration: the model of the local engine and of the trainer.

Query, key and value weights are fused, and gate and up; `weights.py` translates to the names of Hugging Face folders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from orgthink.models.config import DecoderConfig, UnknownArchitecture
from orgthink.models.hub import name_of
from orgthink.models.lora import (
    ADAPTER,
    Adapter,
    Lora,
    LoraSettings,
    RoleAdapters,
    matrices_of,
    read_adapter,
    write_adapter,
)
from orgthink.models.processor import linear_map
from orgthink.models.rotary import Rotary, rotate
from orgthink.models.tree_attention import Rectangle, tree_attention
from orgthink.models.weights import from_hf, parts_of, read_weights, to_hf
from orgthink.util.errors import explained

# Shapes: B batch, T tokens, R rectangles, C hidden, H query heads, K key/value heads, D head size, V vocabulary.

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Attention of one layer: gets the index of the layer and its queries, keys and values, [..., H or K, D] each, and
returns [..., H, D]."""

_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
}


class Norm(nn.RMSNorm):
    """Root mean square norm. With an `offset`, as in Gemma, that is added to the weights."""

    def __init__(self, size: int, eps: float, offset: float = 0.0) -> None:
        super().__init__(size, eps)
        self.offset = offset

    @property
    def scale(self) -> Tensor:
        return self.weight + self.offset if self.offset else self.weight

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.scale, self.eps)


class Linear(nn.Linear):
    """A linear layer that may have a low-rank adapter."""

    def __init__(self, width: int, rows: int, *, bias: bool) -> None:
        super().__init__(width, rows, bias=bias)
        self.adapter: Callable[[Tensor, Tensor], Tensor] | None = None
        """Changes the output in place, given the input."""

    def forward(self, input: Tensor) -> Tensor:
        output = linear_map(input, self.weight, self.bias)
        return output if self.adapter is None else self.adapter(input, output)


class Layer(nn.Module):
    """Attention and MLP, each with its norm before, perhaps one after, and its residual around."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.heads = (config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads)
        self.head_dim = config.head_dim
        width, inner, rows = config.hidden_size, config.intermediate_size, sum(self.heads) * config.head_dim
        norm = partial(Norm, eps=config.rms_norm_eps, offset=float(config.is_gemma))
        self.qkv = Linear(width, rows, bias=config.qkv_bias)
        self.output = Linear(self.heads[0] * config.head_dim, width, bias=config.output_bias)
        self.gate_up = Linear(width, 2 * inner, bias=config.mlp_bias)
        self.down = Linear(inner, width, bias=config.mlp_bias)
        self.attention_norm, self.mlp_norm = norm(width), norm(width)
        self.query_norm = norm(config.head_dim) if config.has_query_norms else None
        self.key_norm = norm(config.head_dim) if config.has_query_norms else None
        self.after_attention = norm(width) if config.is_gemma else nn.Identity()
        self.after_mlp = norm(width) if config.is_gemma else nn.Identity()
        self._activation = _ACTIVATIONS[config.activation]

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, attend: Callable[[Tensor, Tensor, Tensor], Tensor]
    ) -> Tensor:
        x = x + self.after_attention(self.output(attend(*self._project(x, cos, sin)).flatten(-2)))
        return x + self.after_mlp(self._mlp(x))

    def _project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of [..., C]: [..., heads, D] each, rotated, and normed where the model does so."""
        query, key, value = self.heads
        qk, v = self.qkv(self.attention_norm(x)).unflatten(-1, (-1, self.head_dim)).split((query + key, value), -2)
        if self.query_norm is not None and self.key_norm is not None:
            scale = torch.cat([self.query_norm.scale.expand(query, -1), self.key_norm.scale.expand(key, -1)])
            qk = F.rms_norm(qk, qk.shape[-1:], eps=self.query_norm.eps) * scale
        q, k = rotate(qk, cos, sin).split((query, key), -2)
        return q, k, v

    def _mlp(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
        return self.down(self._activation(gate) * up)


class Decoder(nn.Module):
    """Token ids in, logits out."""

    packs_rows = True
    """Its attention supports several rows in one pass."""
    mixed_precision = False
    """Whether trainings compute in bfloat16 with these weights."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        layers = [Layer(config) for _ in range(config.num_hidden_layers)]
        self.layers: list[Layer] = nn.ModuleList(layers)  # type: ignore[assignment]
        self.norm = Norm(config.hidden_size, config.rms_norm_eps, float(config.is_gemma))
        self.head = None if config.tie_word_embeddings else nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self._lora: LoraSettings | None = None
        self._base: Path | None = None
        self.roles: tuple[str, ...] = ()
        """Roles with an adapter of their own."""
        self.adapters: dict[str, list[Lora]] = {}
        """The adapters of all layers, by their folders in the model's folder."""
        self._rotary = Rotary(config.rope, config.head_dim, config.max_position_embeddings)
        local = config.sliding_rope
        self._sliding_rotary = Rotary(local, config.head_dim, config.max_position_embeddings) if local else self._rotary

    @property
    def device(self) -> torch.device:
        return self.norm.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.norm.weight.dtype

    def hidden(self, ids_BT: Tensor, positions_BT: Tensor | None = None, rectangles_R4: Tensor | None = None) -> Tensor:
        """Final hidden states [B, T, C].

        By default rows are right-padded and attention is causal, so padding is not visible. Packed rows are one row,
        B = 1, and need the position of each token in its own text and the rectangles of visible pairs: see
        `tree_attention.rectangles_of`.
        """
        positions = torch.arange(ids_BT.shape[1], device=ids_BT.device) if positions_BT is None else positions_BT
        rectangles = None if rectangles_R4 is None else rectangles_R4.tolist()
        window, scale = self.config.sliding_window, self.config.attention_scale
        mask = None
        if window is not None and int(positions.max()) >= window:
            mask = _window_mask(positions, rectangles, window)

        def attend(layer: int, *qkv_BTHD: Tensor) -> Tensor:
            q, k, v = (heads.transpose(1, 2) for heads in qkv_BTHD)
            seen = mask if layer in self.config.sliding_layers else None
            if seen is None and rectangles is not None:
                return tree_attention(q, k, v, rectangles, scale).transpose(1, 2)
            return F.scaled_dot_product_attention(
                q, k, v, attn_mask=seen, is_causal=seen is None, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
            ).transpose(1, 2)

        return self.decode(ids_BT, positions, attend)

    def decode(self, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Final hidden states [..., C] of tokens [...], each at its position of a sequence.

        `attend` computes the attention of a layer. Over a cache it stores the keys and values, and the new tokens see
        the whole sequence so far.
        """
        x = self.embedding(ids)
        if self.config.is_gemma:
            x = x * torch.tensor(self.config.hidden_size**0.5, dtype=x.dtype)
        cos, sin = self._rotary(positions)
        local = self._sliding_rotary(positions) if self.config.sliding_rope else (cos, sin)
        for i, layer in enumerate(self.layers):
            tables = local if i in self.config.sliding_layers else (cos, sin)
            x = layer(x, *tables, partial(attend, i))
        return self.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., C] → [..., V]."""
        return linear_map(hidden, *self.head_weights)

    @property
    def head_weights(self) -> tuple[Tensor, Tensor | None]:
        """Weight [V, C] and bias [V] of the linear map to the logits."""
        return self.embedding.weight if self.head is None else self.head.weight, None

    def forward(self, ids_BT: Tensor) -> Tensor:
        return self.logits(self.hidden(ids_BT))

    @classmethod
    def load(cls, folder: Path, dtype: torch.dtype = torch.float32) -> Decoder:
        """Open a Hugging Face folder (one or several safetensors files).

        UnknownArchitecture for a model of another kind; ValueError if a file is missing, corrupt or of another model.
        """
        config = DecoderConfig.load(folder)
        weights = read_weights(folder)
        if config.fewest_parameters > 2 * sum(weight.numel() for weight in weights.values()):  # others are named below
            raise ValueError(f"{folder} lacks the weights of a model as large as its config.json says")
        model = cls(config).to(dtype)
        try:
            model.from_hf(weights)
        except KeyError as error:
            raise ValueError(f"{folder} lacks the weights {error}") from error
        except RuntimeError as error:
            raise ValueError(f"{folder}: its weights are not those of its config.json: {error}") from error
        return model

    @property
    def linears(self) -> Iterator[tuple[Linear, dict[str, int]]]:
        """The linear layers that an adapter may change, with the Hugging Face names and output rows of their parts."""
        for i, layer in enumerate(self.layers):
            rows = [heads * layer.head_dim for heads in layer.heads]
            for name in ("qkv", "output", "gate_up", "down"):
                linear: Linear = getattr(layer, name)
                yield linear, parts_of(f"layers.{i}.{name}", linear.out_features, rows)

    def add_adapter(self, lora: LoraSettings, seed: int, base: Path, roles: Sequence[str] = ()) -> None:
        """Add an adapter to the model of the folder `base`, or one for each role: afterwards only their weights are
        trained. ValueError for targets that the model does not have."""
        self.requires_grad_(False)
        places = [f"{ADAPTER}/{role}" for role in roles] or [ADAPTER]
        generators = [torch.Generator().manual_seed(seed) for _ in places]
        self.roles, self.adapters, adapted = tuple(roles), {place: [] for place in places}, set[str]()
        for linear, parts in self.linears:
            if not any(map(lora.adapts, parts)):
                continue
            made = [Lora(parts, linear.in_features, lora, each).to(self.device) for each in generators]
            for place, one in zip(places, made, strict=True):
                self.adapters[place].append(one)
            adapted.update(part.rpartition(".")[2] for part in made[0].names)
            linear.adapter = RoleAdapters(dict(zip(roles, made, strict=True))) if roles else made[0]
        if missing := set(lora.targets) - adapted or ({"any layer"} if not adapted else set()):
            raise ValueError(f"lora.targets names {', '.join(sorted(missing))}, which has no place in the model")
        self._lora, self._base = lora, base

    @property
    def role_adapters(self) -> dict[str, Adapter]:
        """The adapters of roles, for a sampler."""
        assert self._lora is not None, "the model has no adapter"
        each = zip(self.roles, self.adapters.values(), strict=True)
        return {role: Adapter(self._lora, matrices_of(adapters)) for role, adapters in each}

    def use(self, role: str) -> None:
        """Compute with the adapter of a role from now on."""
        for module in self.modules():
            if isinstance(module, RoleAdapters):
                module.used = role

    def save(self, folder: Path) -> None:
        """Write the weights, and adapters next to them, to a model folder."""
        self.save_weights(folder)
        if self._lora is not None and self._base is not None:
            for place, adapters in self.adapters.items():
                write_adapter(folder / place, adapters, self._lora, name_of(self._base))

    def save_weights(self, folder: Path) -> None:
        """Write the weights, with an adapter merged in, but not those of roles."""
        save_file(self.to_hf(), folder / "model.safetensors", metadata={"format": "pt"})

    def restore_adapter(self, folder: Path) -> None:
        """Load an adapter with the same layers and rank into each of the own ones. ValueError for another one."""
        for adapters in self.adapters.values():
            read_adapter(folder, adapters)

    def restore(self, folder: Path) -> None:
        """Load weights that `save` wrote, or only the adapters. ValueError for a model of another shape."""
        if self._lora is not None:
            for place, adapters in self.adapters.items():
                read_adapter(folder / place, adapters)
            return
        with explained(f"{folder} holds a model of another shape", UnknownArchitecture, by=ValueError):
            found = DecoderConfig.load(folder)
        if found != self.config:
            raise ValueError(f"{folder} holds a model of another shape: {found} instead of {self.config}")
        self.load_state_dict(Decoder.load(folder).state_dict())

    def from_hf(self, weights: Mapping[str, Tensor]) -> None:
        """Copy weights with Hugging Face names into this model. KeyError for one that is missing, RuntimeError for one
        of another shape or that the model does not have."""
        new = from_hf(self._own_weights, weights, self._qkv_rows, gemma=self.config.is_gemma)
        self.load_state_dict(new, strict=False)

    @torch.no_grad()
    def to_hf(self) -> dict[str, Tensor]:
        """Weights under Hugging Face names, with an adapter merged in, but not those of roles."""
        weights = self._own_weights
        for name, module in self.named_modules():
            if isinstance(module, Linear) and isinstance(module.adapter, Lora):
                weight = weights[f"{name}.weight"]
                weights[f"{name}.weight"] = weight + module.adapter.change().to(weight.dtype)
        return to_hf(weights, self._qkv_rows, gemma=self.config.is_gemma)

    @property
    def _qkv_rows(self) -> list[int]:
        """Rows of the queries, keys and values of a layer."""
        return [heads * self.config.head_dim for heads in self.layers[0].heads]

    @property
    def _own_weights(self) -> dict[str, Tensor]:
        """The weights without an adapter's."""
        return {name: weight for name, weight in self.state_dict().items() if ".adapter." not in name}


def _window_mask(positions: Tensor, rectangles: Sequence[Rectangle] | None, window: int) -> Tensor:
    """[T, T]: pairs that a layer with a sliding window sees, among the visible ones."""
    place = positions[0] if positions.ndim == 2 else positions
    index = torch.arange(len(place), device=place.device)
    visible = index[:, None] >= index
    if rectangles is not None:
        others, visible = visible, torch.zeros_like(visible)
        for first, last, start, stop in rectangles:
            part = (slice(first, last), slice(start, stop))
            visible[part] = others[part] if first == start else True
    return visible & (place[:, None] - place < window)
