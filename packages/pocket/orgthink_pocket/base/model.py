"""The base model: one vocabulary for all tasks and roles, and embeddings that know the order of the integers.

The vocabulary is that of the pocket models that call tools, and the words of the base.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer

from orgthink.models.qwen3 import Qwen3, Qwen3Config
from orgthink_pocket import model as pocket
from orgthink_pocket import tool_model as tools

WORDS = ("single", "several", "sums", "parts", "part", "row", "column", "box")
"""Words of the base, in the order of their ids."""
LATER = 24
"""Places for words of later roles."""
TASKS = [*tools.TASKS, "countdown-mini", "sudoku", "sums-mini", "parts-mini"]
"""Tasks that the base knows."""
MADE_FOR = {"tasks": TASKS, "organizations": pocket.ORGANIZING}
"""Entries of orgthink.json beside the prompt style."""
PERIODS = (2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 100, 200, 400, 800)
"""Periods of the integers' first embeddings."""
KNOWN = 0.8
"""Share of an integer's first embedding that its value determines; the rest is random."""


def vocabulary() -> list[str]:
    """All tokens in the order of their ids."""
    known = [word for word in tools.vocabulary() if word not in tools.PIECES]
    return [*known, *WORDS, *(f"<later-{i}>" for i in range(LATER)), *tools.PIECES]


def build_tokenizer() -> Tokenizer:
    """One token per word or piece, as in the models that call tools."""
    tokenizer = pocket.build_tokenizer([word for word in vocabulary() if word not in tools.PIECES])
    tokenizer.add_tokens([AddedToken(piece, normalized=False) for piece in tools.PIECES])
    return tokenizer


def write_folder(folder: Path, config: Qwen3Config) -> None:
    """Write a model folder without the weights."""
    pocket.write_folder(folder, config, build_tokenizer(), {"prompts": "pocket-base", **MADE_FOR})


def sized(hidden: int, layers: int) -> Qwen3Config:
    """The architecture in a width and a depth. ValueError unless heads of 32 fit the width in pairs."""
    return replace(pocket.sized(hidden, layers), vocab_size=len(vocabulary()))


def fresh(config: Qwen3Config, seed: int, *, ordered: bool = True) -> Qwen3:
    """A model without training. `ordered`: the embeddings of integers begin as waves of their values, so that what is
    learned about one integer holds for its neighbours, also for targets that no lesson has.
    """
    model, generator = Qwen3(config), torch.Generator().manual_seed(seed)
    model.initialise(generator)
    if ordered:
        ids = torch.tensor([vocabulary().index(str(n)) for n in range(pocket.LARGEST_INTEGER + 1)])
        with torch.no_grad():
            weight = model.embedding.weight
            weight[ids] = _waves(config.hidden_size, weight.std().item(), generator) * KNOWN + weight[ids] * (
                math.sqrt(1 - KNOWN**2)
            )
    return model


def grown(folder: Path, config: Qwen3Config, seed: int) -> Qwen3:
    """A model that begins with the weights of a smaller one: it writes what that one writes.

    Words that both know keep their embeddings, new ones are fresh. New layers come last and change nothing at first.
    ValueError unless the width is the same and it has no more layers than `config`.
    """
    known, model = Qwen3.load(folder), fresh(config, seed)
    shape, wanted = replace(known.config, num_hidden_layers=1, vocab_size=1), replace(config, num_hidden_layers=1)
    if shape != replace(wanted, vocab_size=1) or len(known.layers) > len(model.layers):
        raise ValueError(f"{folder} has {len(known.layers)} layers of another shape or more than {len(model.layers)}")
    tokenizer, words = Tokenizer.from_file(str(folder / "tokenizer.json")), vocabulary()
    with torch.no_grad():
        for word, place in tokenizer.get_vocab(with_added_tokens=True).items():
            name = word.removeprefix("▁")
            if name in words:
                model.embedding.weight[words.index(name)] = known.embedding.weight[place]
        for layer in model.layers[len(known.layers) :]:
            layer.output.weight.zero_()
            layer.down.weight.zero_()
        model.norm.load_state_dict(known.norm.state_dict())
        for layer, other in zip(model.layers, known.layers, strict=False):
            layer.load_state_dict(other.state_dict())
    return model


def _waves(width: int, std: float, generator: torch.Generator) -> torch.Tensor:
    """One row for each integer: cosines and sines of its value, in random directions."""
    values = torch.arange(pocket.LARGEST_INTEGER + 1, dtype=torch.float32)
    angles = torch.outer(values, 2 * math.pi / torch.tensor(PERIODS, dtype=torch.float32))
    waves = torch.cat([angles.cos(), angles.sin()], 1)
    return waves @ torch.randn(waves.shape[1], width, generator=generator) * std / math.sqrt(len(PERIODS))
