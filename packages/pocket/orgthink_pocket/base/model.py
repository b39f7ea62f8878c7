"""The architecture, the vocabulary and fresh weights of the pocket models.

They are Qwen3 models with 1.3 million parameters in the layout of Hugging Face. Every integer up to 399, every tag,
every word and every piece of a tool call is one token. The vocabulary is data: the tokenizer of the shipped base.
"""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import torch

from orgthink.models.config import DecoderConfig
from orgthink.models.decoder import Decoder
from orgthink.models.tokenizer import Tokenizer
from orgthink_pocket.shipped import POCKET_BASE
from orgthink_pocket.tasks.arithmetic import LARGEST

CONFIG = DecoderConfig.load(POCKET_BASE)
"""Head size 32 is the smallest that vLLM decodes."""
PAD = 0
"""Id of the padding token."""
PERIODS = (2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 100, 200, 400, 800)
"""Periods of the integers' first embeddings."""
KNOWN = 0.8
"""Share of an integer's first embedding that its value determines; the rest is random."""


def write_folder(folder: Path) -> None:
    """Write a model folder without the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in POCKET_BASE.glob("*.json"):
        shutil.copyfile(file, folder / file.name)


def fresh(seed: int, config: DecoderConfig = CONFIG) -> Decoder:
    """A model without training.

    The embeddings of integers start as waves of their values, so that lessons about one integer also teach its
    neighbours, including targets that no lesson has.
    """
    model, generator = Decoder(config), torch.Generator().manual_seed(seed)
    initialise(model, generator)
    tokenizer = Tokenizer(POCKET_BASE)
    ids = [tokenizer.encode(f" {n}")[0] for n in range(LARGEST + 1)]
    with torch.no_grad():
        weight = model.embedding.weight
        waves = _waves(config.hidden_size, weight.std().item(), generator)
        weight[ids] = waves * KNOWN + weight[ids] * math.sqrt(1 - KNOWN**2)
    return model


def initialise(model: Decoder, generator: torch.Generator) -> None:
    """Random weights: normal 0.02, scaled down by depth where residuals add up."""
    for name, weight in model.named_parameters():
        if weight.ndim == 2:
            scaled = name.endswith(("output.weight", "down.weight"))
            std = 0.02 / (2 * len(model.layers)) ** 0.5 if scaled else 0.02
            torch.nn.init.normal_(weight, std=0.05 if "embedding" in name else std, generator=generator)


def _waves(width: int, std: float, generator: torch.Generator) -> torch.Tensor:
    """One row for each integer: cosines and sines of its value, in random directions."""
    values = torch.arange(LARGEST + 1, dtype=torch.float32)
    angles = torch.outer(values, 2 * math.pi / torch.tensor(PERIODS, dtype=torch.float32))
    waves = torch.cat([angles.cos(), angles.sin()], 1)
    return waves @ torch.randn(waves.shape[1], width, generator=generator) * std / math.sqrt(len(PERIODS))
