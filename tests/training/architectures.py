"""Tiny random models of transformers in Hugging Face folders, with a tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from engines.models import EOS, word_tokenizer

TOKENIZER = word_tokenizer(["countdown"])
SIZE: dict[str, Any] = {
    "vocab_size": TOKENIZER.get_vocab_size(),
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "eos_token_id": TOKENIZER.token_to_id(EOS),
    "pad_token_id": 1,
}


def tiny(folder: Path, kind: str = "Llama", seed: int = 0, **settings: Any) -> Path:
    """Write a model of `{kind}Config` and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    TOKENIZER.save(str(folder / "tokenizer.json"))
    special = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": EOS, "pad_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(special))
    config = getattr(transformers, f"{kind}Config")(**{**SIZE, **settings})
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config)
    for weight in model.parameters():  # large enough that every part matters
        torch.nn.init.normal_(weight, mean=float(weight.ndim == 1), std=0.2)
    model.save_pretrained(folder)
    return folder
