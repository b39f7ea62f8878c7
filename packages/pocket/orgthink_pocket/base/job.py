"""The training of the base, from scratch or from an earlier state of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

import torch
from torch import Tensor

from orgthink.models.tokenizer import Tokenizer
from orgthink.models.trainable import resolve_device
from orgthink.record.folder import RunFolder
from orgthink.training.coldstart.structures import (
    consistent_structure,
    fixed_structure,
    random_structure,
    varied_structure,
)
from orgthink.training.recipes.base_model import model_folder, start_folder
from orgthink.training.recipes.jobs import Report
from orgthink.training.rows import Row
from orgthink.training.sft import Course, SftSettings, suited, train
from orgthink.util.errors import UserError
from orgthink_pocket.base import lessons
from orgthink_pocket.base import model as base
from orgthink_pocket.base.family import CAPACITIES, Structures
from orgthink_pocket.model import PAD

STRUCTURES: Mapping[str, Structures] = {
    "random": random_structure,
    "varied": varied_structure,
    "consistent": consistent_structure,
    "fixed": fixed_structure,
}
"""Structures of organizers' lessons, by name."""


@dataclass(frozen=True, slots=True)
class Base:
    """The base model: all skills and the form of all roles."""

    settings: SftSettings
    """Settings of the training."""
    model: str | None = None
    """A pocket model of the same width and no more layers to begin with, such as an earlier state of the base; `None`:
    fresh weights."""
    mixture: Literal[
        "even",
        "late",
        "reviews",
        "renewing",
        "renewed",
        "dividing",
        "dividing-whole",
        "dividing-drilled",
        "mixed",
        "linked",
        "manager",
        "manager-serial",
    ] = "even"
    """How often each lesson is drawn: `late` has more of what takes longest to learn, `reviews` has only solvers,
    verifiers and correctors, `renewing` also correctors that begin anew, `renewed` also verifiers of grids that break
    their clues, `dividing` only thinkers, organizers and workers of several countdowns, `dividing-whole` the same with
    six countdowns each, `dividing-drilled` these with more drills, `mixed` the same and named values, `linked`
    countdowns that may need each other, `manager` only managers, `manager-serial` only those with one
    call a round."""
    organizers: Literal["random", "varied", "consistent", "fixed", "none"] = "random"
    """Structures of its organizers: `random`, as AsyncThink's cold start has them; `varied`, each with chances of its
    own for thinking, forks and joins; `consistent`, the same with one size for all forks, from one to three parts, and
    with habits of joining the oldest fork first and of forking parts with those that need them; `fixed`, the two
    topologies that a teacher writes by itself; or `none`, no lessons of organizers and workers."""
    capacity: int | None = None
    """c of its organizers' lessons; `None`: 2, 3, 4 or 8."""
    start_weight: float = 0.0
    """Share of `model` in the weights of the result, from 0 to 1: 0.5 is the mean of what it was and what it became,
    which forgets less of what the lessons have little of (WiSE-FT, Wortsman et al. 2022)."""
    ordered: bool = True
    """Whether the fresh embeddings of integers know their order."""
    device: str = "auto"
    """`cpu`, `cuda`, or `auto` for the available one."""
    hidden: int = 128
    """Width of the model, a multiple of 64. Its heads and its inner width grow with it."""
    layers: int = 6
    """Number of its layers."""
    shape: ClassVar[str] = "pocket"
    """A shipped model of a similar size."""

    def __post_init__(self) -> None:
        base.sized(self.hidden, self.layers)
        if self.capacity is not None and self.capacity < 1:
            raise ValueError(f"capacity is {self.capacity}: an organizer needs at least 1, itself")
        if not 0 <= self.start_weight <= 1:
            raise ValueError(f"start_weight is {self.start_weight}: it must be from 0 to 1")

    @property
    def steps(self) -> int:
        return self.settings.steps

    def require(self) -> None:
        if self.model is not None:
            model_folder(self.model)
        elif self.start_weight:
            raise UserError("start_weight is a share of the model to begin with, and there is none: name one")
        resolve_device(self.device)

    def run(self, folder: RunFolder, report: Report) -> Path:
        needed_by = "start_weight" if self.start_weight else None
        start_from = None if self.model is None else start_folder(self.model, folder, needed_by)
        course = self._course(folder.path / "tokenizer", start_from)
        start = [weight.detach().clone() for weight in course.model.parameters()]
        end = train(course, self.settings, folder, report)
        return self._averaged(course, start, folder.path / "averaged") if self.start_weight else end

    def _averaged(self, course: Course, start: list[Tensor], folder: Path) -> Path:
        """Move the trained weights towards those at the start, and write the model. Returns its checkpoint."""
        with torch.no_grad():
            for weight, former in zip(course.model.parameters(), start, strict=True):
                weight.lerp_(former, self.start_weight)
        course.write_folder(folder / "model")
        course.model.save(folder / "model")
        return folder

    def _course(self, place: Path, start_from: Path | None = None) -> Course:
        """The model, from the weights of a folder or fresh, and its rows. Its tokenizer is written to `place`."""
        config, seed = base.sized(self.hidden, self.layers), self.settings.seed
        if start_from is None:
            model = base.fresh(config, seed, ordered=self.ordered)
        else:
            model = base.grown(start_from, config, seed)
        base.write_folder(place, config)
        tokenizer = Tokenizer(place)

        mixture = lessons.MIXTURES[self.mixture]
        if self.organizers == "none":
            mixture = replace(mixture, organizing={})
        structures = STRUCTURES.get(self.organizers, random_structure)  # of none there are no lessons
        capacities = CAPACITIES if self.capacity is None else (self.capacity,)

        def rows(seed: int, pool: int) -> Iterator[Row]:
            return lessons.rows(seed, pool, tokenizer, mixture, structures, capacities)

        device, write = resolve_device(self.device), partial(base.write_folder, config=config)
        return Course(model.to(device), rows, write, base.vocabulary().index(PAD), **suited(device))


SETTINGS = SftSettings(steps=16_000, learning_rate=3e-3, warmup=200, batch_rows=48, save_every=100)
"""Of a training from scratch: some 115 M tokens."""
POCKET_BASE = Base(SETTINGS)
"""Trains the base from scratch."""
POCKET_BASE_GROWN = Base(replace(SETTINGS, steps=8_000, learning_rate=1.5e-3), model="pocket")
"""Trains the base from `pocket`, which knows numbers, scans and copies, but no review and no calls."""
POCKET_BASE_LATE = Base(replace(SETTINGS, steps=4_000, learning_rate=1e-3, seed=1), mixture="late")
"""The second phase, from what either of the others trained: `--model FOLDER`."""
