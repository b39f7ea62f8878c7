"""Random models. Their vocabulary is the words `w0`, `w1`, …; that of the pocket size, a million weights, has 512."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import torch
from orgthink_pocket.model import CONFIG as POCKET
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from orgthink.engines.local.qwen3 import Qwen3, Qwen3Config

CONFIG = replace(POCKET, vocab_size=512, max_position_embeddings=2048)


def random_model(
    folder: Path, config: Qwen3Config = CONFIG, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> Path:
    """Write the model as a Hugging Face folder. It has no end-of-text token, so every text has the requested length.

    The weights are drawn on `device`.
    """
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(config.vocab_size)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Split(Regex(r"\s+"), "removed")
    words.save(str(folder / "tokenizer.json"))
    with torch.device(device):
        model = Qwen3(config).to(dtype)
    generator = torch.Generator(device).manual_seed(0)
    for weight in model.parameters():
        if weight.ndim == 2:  # larger than usual, so that the text varies
            torch.nn.init.normal_(weight, std=1.5 / weight.shape[1] ** 0.5, generator=generator)
    model.save(folder)
    config.save(folder, eos_token_id=0, pad_token_id=0, dtype=str(dtype).removeprefix("torch."))
    written = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**written, "eos_token_id": None}))
    return folder
