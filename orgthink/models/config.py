"""The fields of a Hugging Face `config.json` that determine what a decoder computes: Llama, Mistral, Qwen2, Qwen3 and
Gemma 3."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orgthink.models.rotary import KINDS, PLAIN, Rope
from orgthink.util.tabular import json_object

LARGEST = 1 << 24
"""Largest size in a config.json: a larger one is damage, and would take all memory."""

ARCHITECTURES = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Gemma3ForCausalLM",
)
"""Architectures of `Decoder`."""

ACTIVATIONS = ("silu", "gelu", "gelu_pytorch_tanh")
"""Activations of its MLPs."""


class UnknownArchitecture(ValueError):
    """A model that `Decoder` does not compute. transformers may."""


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """What a decoder computes. The sizes have the names of `config.json`."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = True
    architecture: str = "Qwen3ForCausalLM"
    """One of `ARCHITECTURES`."""
    activation: str = "silu"
    """One of `ACTIVATIONS`."""
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    rope: Rope = PLAIN
    """Rotary positions of layers that see the whole text."""
    sliding_rope: Rope | None = None
    """Those of layers with a sliding window, if they differ."""
    sliding_window: int | None = None
    """Tokens that a layer with a sliding window sees, its own included."""
    sliding_layers: frozenset[int] = frozenset()
    """Layers with a sliding window."""
    attention_scale: float | None = None
    """Factor of the products of queries and keys; `None`: one over the square root of `head_dim`."""

    @classmethod
    def load(cls, folder: Path) -> DecoderConfig:
        """Read `config.json`. UnknownArchitecture for a model of another kind, ValueError if it is damaged."""
        return _config(json_object(folder / "config.json"), folder)

    @property
    def is_gemma(self) -> bool:
        """Norms on both sides of attention and MLP, stored as deviations from 1, and scaled embeddings."""
        return self.architecture == "Gemma3ForCausalLM"

    @property
    def has_query_norms(self) -> bool:
        """Whether queries and keys are normed before they are rotated."""
        return self.architecture in ("Qwen3ForCausalLM", "Gemma3ForCausalLM")

    @property
    def fewest_parameters(self) -> int:
        """Those of the embedding, the attention and the MLPs, without norms and biases."""
        attention = 2 * (self.num_attention_heads + self.num_key_value_heads) * self.head_dim
        layers = self.num_hidden_layers * (attention + 3 * self.intermediate_size)
        return self.hidden_size * (self.vocab_size + layers)

    def save(self, folder: Path, *, eos_token_id: int, pad_token_id: int, dtype: str = "float32") -> None:
        """Write the `config.json` of a new model, a plain Qwen3, that transformers and vLLM open."""
        if self.architecture != "Qwen3ForCausalLM" or self.sliding_layers or self.rope.kind != "default":
            raise ValueError("only the config of a plain Qwen3 can be written")
        raw: dict[str, Any] = {name: getattr(self, name) for name in SIZES}
        raw |= {
            "architectures": [self.architecture],
            "model_type": "qwen3",
            "hidden_act": self.activation,
            "rms_norm_eps": self.rms_norm_eps,
            "tie_word_embeddings": self.tie_word_embeddings,
            "attention_bias": False,
            "attention_dropout": 0.0,
            "use_sliding_window": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rope.theta},
            "dtype": dtype,
            "eos_token_id": eos_token_id,
            "pad_token_id": pad_token_id,
        }
        (folder / "config.json").write_text(json.dumps(raw, indent=2) + "\n")


SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
)


def _config(raw: Mapping[str, Any], folder: Path) -> DecoderConfig:
    named = raw.get("architectures")
    architecture = named[0] if isinstance(named, list) and len(named) == 1 else None
    if architecture not in ARCHITECTURES:
        raise UnknownArchitecture(f"{folder} holds {named}, not one of {', '.join(ARCHITECTURES)}")
    raw = _defaults(architecture, raw) | {name: value for name, value in raw.items() if value is not None}
    if missing := [name for name in SIZES if name not in raw]:
        raise ValueError(f"{folder / 'config.json'} lacks {', '.join(missing)}")
    read = _Reader(raw, folder)
    sizes = {name: read.size(name) for name in SIZES}
    if sizes["num_attention_heads"] % sizes["num_key_value_heads"]:
        raise ValueError(f"{folder / 'config.json'}: num_attention_heads is no multiple of num_key_value_heads")
    if sizes["head_dim"] % 2:
        raise ValueError(f"{folder / 'config.json'}: head_dim is {sizes['head_dim']}: rotary positions need pairs")
    biased = architecture == "Qwen2ForCausalLM"
    sliding = read.sliding_layers(architecture)
    rope, sliding_rope = read.ropes(architecture)
    return DecoderConfig(
        **sizes,
        rms_norm_eps=read.number("rms_norm_eps"),
        tie_word_embeddings=read.flag("tie_word_embeddings"),
        architecture=architecture,
        activation=read.activation(),
        qkv_bias=biased or read.flag("attention_bias"),
        output_bias=not biased and read.flag("attention_bias"),
        mlp_bias=read.flag("mlp_bias"),
        rope=rope,
        sliding_rope=sliding_rope,
        sliding_window=read.size("sliding_window") if sliding else None,
        sliding_layers=sliding,
        attention_scale=read.number("query_pre_attn_scalar") ** -0.5 if "query_pre_attn_scalar" in raw else None,
    )


def _defaults(architecture: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    """What transformers assumes where a `config.json` says nothing."""
    gemma, heads, width = architecture == "Gemma3ForCausalLM", raw.get("num_attention_heads"), raw.get("hidden_size")
    defaults: dict[str, Any] = {
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": gemma,
        "hidden_act": "silu",
        "max_window_layers": 28,
    }
    if type(heads) is int and type(width) is int and heads > 0:
        defaults |= {"num_key_value_heads": heads, "head_dim": width // heads}
    if architecture == "Qwen3ForCausalLM":
        defaults["head_dim"] = 128
    if architecture == "MistralForCausalLM" and "sliding_window" not in raw:
        defaults["sliding_window"] = 4096
    if gemma:
        defaults |= {"head_dim": 256, "hidden_act": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256}
        defaults |= {"sliding_window": 4096, "rope_theta": 1e6, "rope_local_base_freq": 1e4}
        defaults["sliding_window_pattern"] = raw.get("_sliding_window_pattern") or 6
    return defaults


class _Reader:
    """Checks the values of a `config.json`: a model folder may come from a stranger."""

    def __init__(self, raw: Mapping[str, Any], folder: Path) -> None:
        self._raw, self._file = raw, folder / "config.json"

    def size(self, name: str, least: int = 1) -> int:
        value = self._raw[name]
        if type(value) is not int or not least <= value <= LARGEST:
            raise ValueError(
                f"{self._file}: {name} is {value!r}: it must be a whole number from {least} to {LARGEST:,}"
            )
        return value

    def flag(self, name: str) -> bool:
        """A switch; off without one."""
        value = self._raw.get(name, False)
        if type(value) is not bool:
            raise ValueError(f"{self._file}: {name} is {value!r}: it must be true or false")
        return value

    def number(self, name: str, values: Mapping[str, Any] | None = None) -> float:
        value = (self._raw if values is None else values)[name]
        if type(value) not in (int, float) or not 0 < value < float("inf"):
            raise ValueError(f"{self._file}: {name} is {value!r}: it must be a number above 0")
        return float(value)

    def activation(self) -> str:
        name = self._raw.get("hidden_activation") or self._raw["hidden_act"]
        if name not in ACTIVATIONS:
            raise UnknownArchitecture(f"{self._file}: the activation {name!r} is not one of {', '.join(ACTIVATIONS)}")
        if any(self._raw.get(name) for name in ("final_logit_softcapping", "attn_logit_softcapping")):
            raise UnknownArchitecture(f"{self._file} caps its logits or its attention scores")
        if self._raw.get("use_bidirectional_attention"):
            raise UnknownArchitecture(f"{self._file} lets tokens see later ones")
        return name

    def sliding_layers(self, architecture: str) -> frozenset[int]:
        kinds, layers = self._raw.get("layer_types"), range(self.size("num_hidden_layers"))
        has_window = self._raw.get("sliding_window") is not None
        if architecture == "MistralForCausalLM":
            return frozenset(layers if has_window else ())
        if architecture == "LlamaForCausalLM" or (
            architecture.startswith("Qwen") and not self.flag("use_sliding_window")
        ):
            return frozenset()
        if kinds is not None:
            if type(kinds) is not list or len(kinds) != len(layers) or any(kind not in _LAYERS for kind in kinds):
                raise ValueError(f"{self._file}: layer_types must be {' or '.join(_LAYERS)} for each layer")
            return frozenset(i for i, kind in enumerate(kinds) if kind == _LAYERS[0])
        if architecture == "Gemma3ForCausalLM":
            return frozenset(i for i in layers if (i + 1) % self.size("sliding_window_pattern"))
        return frozenset(layers[self.size("max_window_layers", 0) :] if has_window else ())

    def ropes(self, architecture: str) -> tuple[Rope, Rope | None]:
        """Those of layers that see the whole text, and of layers with a sliding window."""
        raw = self._raw
        given = raw.get("rope_parameters") or {}
        plain = {
            "rope_theta": raw.get("rope_theta", 10_000.0),
            "partial_rotary_factor": raw.get("partial_rotary_factor", 1),
        }
        scaling = raw.get("rope_scaling") or {}
        parts = [given.get(f"{kind}_attention") or {} for kind in ("full", "sliding")] if type(given) is dict else []
        if not parts or any(type(table) is not dict for table in (scaling, *parts)):
            raise ValueError(f"{self._file}: its rotary parameters are no table of names and values")
        if architecture != "Gemma3ForCausalLM":
            return self._rope(plain | dict(scaling) | dict(given)), None
        local, (whole, sliding) = plain | {"rope_theta": raw["rope_local_base_freq"]}, parts
        return self._rope(plain | dict(scaling) | dict(whole)), self._rope(local | dict(sliding))

    def _rope(self, values: Mapping[str, Any]) -> Rope:
        kind = values.get("rope_type", values.get("type", "default"))
        unusual = [name for name in ("mscale", "mscale_all_dim") if values.get(name)]
        if kind not in KINDS or values["partial_rotary_factor"] != 1 or unusual:
            raise UnknownArchitecture(f"{self._file} has rotary positions that are not one of {', '.join(KINDS)}")
        theta = self.number("rope_theta", values)
        if kind == "default":
            return Rope(theta)
        if values.get("factor") is None:
            raise ValueError(f"{self._file}: rotary positions of kind {kind} lack their factor")
        length = {"original_max_position_embeddings": self._raw["max_position_embeddings"]}
        present = length | {name: value for name, value in values.items() if value is not None}
        numbers: dict[str, Any] = {
            field: self.number(name, present) for field, name in _ROPE_FIELDS.items() if name in present
        }
        return Rope(theta, kind, truncate=bool(present.get("truncate", True)), **numbers)


_LAYERS = ("sliding_attention", "full_attention")
"""Kinds of layers that are computed."""

_ROPE_FIELDS = {
    "factor": "factor",
    "original": "original_max_position_embeddings",
    "low": "low_freq_factor",
    "high": "high_freq_factor",
    "beta_fast": "beta_fast",
    "beta_slow": "beta_slow",
    "attention_factor": "attention_factor",
}
