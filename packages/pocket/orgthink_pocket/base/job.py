"""The training job of the base: supervised lessons, from scratch or from an earlier state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import ClassVar, Literal

from orgthink.models.decoder import Decoder
from orgthink.models.tokenizer import Tokenizer
from orgthink.models.trainable import resolve_device
from orgthink.record.folder import RunFolder
from orgthink.training.recipes.base_model import model_folder
from orgthink.training.recipes.jobs import Report
from orgthink.training.rows import Row
from orgthink.training.sft import Course, SftSettings, train
from orgthink_pocket.base import lessons, model


@dataclass(frozen=True, slots=True)
class Base:
    """Supervised lessons in all skills and in the form of all roles."""

    settings: SftSettings
    """Settings of the training."""
    model: str | None = None
    """A pocket model to start from; `None`: fresh weights."""
    mixture: Literal["even", "late", "manager"] = "even"
    """How often each lesson is drawn: `late` has more organizers, `manager` has only managers."""
    device: str = "auto"
    """`cpu`, `cuda`, or `auto` for the available one."""
    shape: ClassVar[str] = "pocket-base"
    """A shipped model of the same size."""

    def require(self) -> None:
        if self.model is not None:
            model_folder(self.model)
        resolve_device(self.device)

    def run(self, folder: RunFolder, report: Report) -> Path:
        place, device = folder.path / "tokenizer", resolve_device(self.device)
        weights = model.fresh(self.settings.seed) if self.model is None else Decoder.load(model_folder(self.model))
        model.write_folder(place)
        rows = partial(_rows, Tokenizer(place), lessons.MIXTURES[self.mixture])
        course = Course(weights.to(device), rows, model.write_folder)
        return train(course, self.settings, folder, report)


EPOCH = 1280
"""Rows that are drawn for an epoch."""


def _rows(tokenizer: Tokenizer, mixture: lessons.Mixture, seed: int, epoch: int) -> Iterator[Row]:
    return islice(lessons.rows(seed, epoch, tokenizer, mixture), EPOCH)


SETTINGS = SftSettings(steps=16_000, learning_rate=3e-3, warmup=200, batch_rows=48, save_every=100)
"""Settings of a training from scratch: some 115 M tokens."""
POCKET_BASE = Base(SETTINGS)
"""Trains the base from scratch; hours on two cores."""
POCKET_BASE_LATE = Base(replace(SETTINGS, steps=4_000, learning_rate=1e-3, seed=1), model="pocket-base", mixture="late")
"""The second phase of the base's training: `--model FOLDER` names the result of the first."""
MANAGER_LESSONS = Base(
    SftSettings(steps=200, learning_rate=5e-4, warmup=20, batch_rows=48), model="pocket-base", mixture="manager"
)
"""ParaManager's supervised fine-tuning: rounds of a manager that calls any member at random."""
