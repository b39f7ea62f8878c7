"""Random models of any shape, such as the pocket size of about a million parameters."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import torch
from orgthink_pocket.base.model import CONFIG as POCKET
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from orgthink.models.config import DecoderConfig
from orgthink.models.decoder import Decoder

CONFIG = replace(POCKET, vocab_size=512, max_position_embeddings=2048)


def pocket_size_model(folder: Path) -> Path:
    """Write a model of the pocket size as a Hugging Face folder."""
    return random_model(folder, CONFIG, torch.float32)


def random_model(folder: Path, config: DecoderConfig, dtype: torch.dtype, device: str = "cpu") -> Path:
    """Write a random model as a Hugging Face folder. Its vocabulary is the words `w0`, `w1`, … It has no end-of-text
    token, so every text has the requested length. The weights are drawn on `device`."""
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(config.vocab_size)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Split(Regex(r"\s+"), "removed")
    words.save(str(folder / "tokenizer.json"))
    with torch.device(device):
        model = Decoder(config).to(dtype)
    generator = torch.Generator(device).manual_seed(0)
    for weight in model.parameters():
        if weight.ndim == 2:  # larger than usual, so that the text varies
            torch.nn.init.normal_(weight, std=1.5 / weight.shape[1] ** 0.5, generator=generator)
    model.save(folder)
    config.save(folder, eos_token_id=0, pad_token_id=0, dtype=str(dtype).removeprefix("torch."))
    raw = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**raw, "eos_token_id": None}))
    return folder
