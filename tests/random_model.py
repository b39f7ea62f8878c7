"""A model of random weights in the shape of a real one: a recipe is tried on it, a step or two, without a download."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from orgthink.models.config import DecoderConfig
from orgthink.models.huggingface import HuggingFaceModel

TURN, END = "<|im_start|>", "<|im_end|>"

TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Turns as Qwen writes them."""


def write_random_model(
    folder: Path, architecture: DecoderConfig, *, layers: int | None = None, seed: int = 0, dtype: str = "bfloat16"
) -> Path:
    """Write a model folder of random weights and return it; `layers` leaves the width as it is and makes it flatter.

    One file a layer is written at a time, so memory holds no more than the embedding.
    """
    config = architecture if layers is None else replace(architecture, num_hidden_layers=layers)
    eos = _write_tokenizer(folder, config.vocab_size)
    config.save(folder, eos_token_id=eos, pad_token_id=eos, dtype=dtype)
    where: dict[str, str] = {}
    for number, weights in enumerate(_weights(config, seed, getattr(torch, dtype))):
        file = f"model-{number + 1:05d}-of-{config.num_hidden_layers + 1:05d}.safetensors"
        save_file(weights, folder / file, metadata={"format": "pt"})
        where |= dict.fromkeys(weights, file)
    _write(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": where})
    return folder


def write_random_experts(folder: Path, architecture: dict[str, Any], *, seed: int = 0, dtype: str = "bfloat16") -> Path:
    """Write a model folder of random weights in the shape of a mixture of experts, and return it.

    transformers builds it, so all of it is in memory: scale `architecture` down.
    """
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    eos = _write_tokenizer(folder, architecture["vocab_size"])
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**architecture, eos_token_id=eos, pad_token_id=eos))
    HuggingFaceModel(model.to(getattr(torch, dtype)), folder).save(folder)
    return folder


def byte_tokenizer(size: int) -> Tokenizer:
    """One token a byte, two for the turns of a chat, and as many more as fill the vocabulary: every id has a text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    rest = [f"<|{i}|>" for i in range(len(alphabet) + 2, size)]
    ids = {text: i for i, text in enumerate([*alphabet, TURN, END, *rest])}
    tokenizer = Tokenizer(models.BPE(ids, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in (TURN, END)])
    return tokenizer


def _write_tokenizer(folder: Path, size: int) -> int:
    """Make the folder, with tokenizer and template; the id that ends a turn."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = byte_tokenizer(size)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    _write(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END})
    (eos,) = tokenizer.encode(END).ids
    return eos


def _weights(config: DecoderConfig, seed: int, dtype: torch.dtype) -> Iterator[dict[str, Tensor]]:
    """First what stands around the layers, then each layer."""
    generator = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int) -> Tensor:
        return torch.empty(rows, columns, dtype=dtype).normal_(std=0.02, generator=generator)

    width, inner, head = config.hidden_size, config.intermediate_size, config.head_dim
    queries, keys = config.num_attention_heads * head, config.num_key_value_heads * head
    outer = {
        "model.embed_tokens.weight": matrix(config.vocab_size, width),
        "model.norm.weight": torch.ones(width, dtype=dtype),
    }
    yield outer if config.tie_word_embeddings else outer | {"lm_head.weight": matrix(config.vocab_size, width)}
    for i in range(config.num_hidden_layers):
        layer = {
            "self_attn.q_proj": matrix(queries, width),
            "self_attn.k_proj": matrix(keys, width),
            "self_attn.v_proj": matrix(keys, width),
            "self_attn.o_proj": matrix(width, queries),
            "mlp.gate_proj": matrix(inner, width),
            "mlp.up_proj": matrix(inner, width),
            "mlp.down_proj": matrix(width, inner),
            "input_layernorm": torch.ones(width, dtype=dtype),
            "post_attention_layernorm": torch.ones(width, dtype=dtype),
            "self_attn.q_norm": torch.ones(head, dtype=dtype),
            "self_attn.k_norm": torch.ones(head, dtype=dtype),
        }
        yield {f"model.layers.{i}.{name}.weight": weight for name, weight in layer.items()}


def _write(file: Path, content: dict[str, object]) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n")
