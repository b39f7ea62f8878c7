"""Recipes by name, and the run folders they leave: started once, resumed as often as it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from orgthink.engines.qwen3 import Qwen3
from orgthink.engines.tokenizer import Tokenizer
from orgthink.store import RunFolder
from orgthink.training import pocket
from orgthink.training.rows import Row, row_of
from orgthink.training.sft import Course, SftSettings, train

RECIPES: dict[str, SftSettings] = {"pocket": SftSettings(steps=8_000, learning_rate=3e-3)}
"""`pocket` trains the shipped model from scratch."""

Report = Callable[[dict[str, float]], None]
"""Gets the metrics of each step."""


@dataclass(frozen=True, slots=True)
class Training:
    """What is trained: everything that decides the result, as config.json holds it."""

    recipe: str
    """Name of the recipe."""
    settings: SftSettings
    """Its settings."""
    device: str = "auto"
    """`cpu`, `cuda`, or whichever is there."""


def start(training: Training, path: Path) -> RunFolder:
    """A new run folder for a training. UserError if something else is there."""
    return RunFolder.create(path, "train", training)


def training_of(folder: RunFolder) -> Training:
    """What is trained in a run folder; UserError if it holds no training."""
    return folder.settings("train", Training)


def go_on(folder: RunFolder, report: Report) -> Path:
    """Train on from the newest checkpoint to the last step; returns the model's folder.

    UserError if the folder holds no training, or another process is at it.
    """
    training = training_of(folder)
    course = pocket_course(training.settings.seed, folder.path / "tokenizer", training.device)
    return train(course, training.settings, folder, report) / "model"


def pocket_course(seed: int, folder: Path, device: str) -> Course:
    """The pocket model with fresh weights, and its rows. Its tokenizer is written to the folder."""
    pocket.write_folder(folder)
    tokenizer = Tokenizer(folder)
    (eos,) = tokenizer.eos_ids

    def rows(seed: int, pool: int) -> Iterator[Row]:
        for traces in pocket.lessons(seed, pool):
            for trace in traces:
                yield row_of(trace, tokenizer.encode, eos)

    model = Qwen3(pocket.CONFIG)
    model.initialise(torch.Generator().manual_seed(seed))
    chosen = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    return Course(model.to(chosen), rows, pocket.write_folder, pocket.vocabulary().index(pocket.PAD))
