"""config.json of a model, by its name, folder or file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from orgthink.engines import MODELS
from orgthink.models.qwen3 import Qwen3Config
from orgthink.util.errors import UserError, pick
from orgthink.util.files import read_whole

QWEN3_4B = Qwen3Config(
    vocab_size=151_936,
    hidden_size=2560,
    intermediate_size=9728,
    num_hidden_layers=36,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    max_position_embeddings=40_960,
    rope_theta=1_000_000.0,
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
    if not Path(name).exists():
        pick("recipe or model", name, dict.fromkeys(known))


def known_models() -> dict[str, Mapping[str, Any]]:
    """config.json of models that are known without their files: the entries that decide sizes."""

    def dense(layers: int, hidden: int, inner: int, heads: int, *, tied: bool = False) -> dict[str, Any]:
        shape = {"num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": inner}
        return asdict(replace(QWEN3_4B, **shape, num_attention_heads=heads, tie_word_embeddings=tied))

    shipped = {name: json.loads((MODELS[name] / "config.json").read_text()) for name in sorted(MODELS)}
    return {
        **shipped,
        "qwen3-0.6b": dense(28, 1024, 3072, 16, tied=True),
        "qwen3-1.7b": dense(28, 2048, 6144, 16, tied=True),
        "qwen3-4b": asdict(QWEN3_4B),
        "qwen3-4b-2507": asdict(replace(QWEN3_4B, max_position_embeddings=262_144, rope_theta=5_000_000.0)),
        "qwen3-8b": dense(36, 4096, 12_288, 32),
        "qwen3-14b": dense(40, 5120, 17_408, 40),
        "qwen3-32b": dense(64, 5120, 25_600, 64),
        "qwen3-30b-a3b": QWEN3_30B_A3B,
        "qwen3-235b-a22b": QWEN3_30B_A3B
        | {"num_hidden_layers": 94, "hidden_size": 4096, "moe_intermediate_size": 1536, "num_attention_heads": 64},
    }


def config_of(model: str) -> Mapping[str, Any]:
    """Contents of a model's config.json, by its name, folder or file. UserError if it cannot be read."""
    if model in (known := known_models()):
        return known[model]
    require_known(model, list(known))
    file = Path(model) / "config.json" if Path(model).is_dir() else Path(model)
    try:
        config = json.loads(read_whole(file))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file} is not a config.json: {error}") from error
    if not isinstance(config, dict):
        raise UserError(f"{file} is not a config.json: it holds no JSON object")
    return config
