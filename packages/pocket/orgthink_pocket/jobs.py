"""Training jobs of the pocket models: from scratch, in roles, and in calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

import torch

from orgthink.models.qwen3 import Qwen3, Qwen3Config
from orgthink.models.tokenizer import Tokenizer
from orgthink.models.trainable import open_trainable, resolve_device
from orgthink.record.folder import RunFolder
from orgthink.training.recipes.base_model import FromModel
from orgthink.training.recipes.jobs import Report
from orgthink.training.rows import Row, row_of
from orgthink.training.sft import Course, SftSettings, train
from orgthink.util.errors import UserError
from orgthink_pocket import model as pocket
from orgthink_pocket import tool_model as pocket_tools
from orgthink_pocket.lessons import rehearsals
from orgthink_pocket.lessons import roles as role_lessons
from orgthink_pocket.lessons import tools as tool_lessons
from orgthink_pocket.teachers.seen import MATCHED

REVIEWED = {
    "tasks": ["arithmetic-mini", "countdown-mini-single"],
    "organizations": {**pocket.ORGANIZING, "verifier-corrector": {"passes": 1, "rounds": 4, "attempts": 1}},
}
"""What orgthink.json of models in the roles of MarsRL says beside the prompt style."""


@dataclass(frozen=True, slots=True)
class Pocket:
    """The pocket model, from scratch."""

    settings: SftSettings
    """Settings of the training."""
    forks: bool = True
    """Whether its lessons include organizers and workers."""
    device: str = "auto"
    """`cpu`, `cuda`, or `auto` for the available one."""
    hidden: int = pocket.CONFIG.hidden_size
    """Width of the model, a multiple of 64. Its heads and its inner width grow with it."""
    layers: int = pocket.CONFIG.num_hidden_layers
    """Number of its layers."""
    shape: ClassVar[str] = "pocket"
    """A shipped model of the same size."""

    def __post_init__(self) -> None:
        pocket.sized(self.hidden, self.layers)

    @property
    def steps(self) -> int:
        return self.settings.steps

    def require(self) -> None:
        resolve_device(self.device)

    def run(self, folder: RunFolder, report: Report) -> Path:
        config, place = pocket.sized(self.hidden, self.layers), folder.path / "tokenizer"
        course = pocket_course(self.settings.seed, place, self.device, forks=self.forks, config=config)
        return train(course, self.settings, folder, report)


@dataclass(frozen=True, slots=True)
class Roles(FromModel):
    """The pocket model in the roles of solver, verifier and corrector: the cold start of MarsRL."""

    settings: SftSettings
    """Settings of the training."""
    lessons: role_lessons.Course = "form"
    """`skill` first, `form` in a second training."""

    def run(self, folder: RunFolder, report: Report) -> Path:
        tokenizer, (eos,) = _pocket_tokenizer(folder.path / "tokenizer")

        def rows(seed: int, pool: int) -> Iterator[Row]:
            return (row_of(trace, tokenizer.encode, eos) for trace in role_lessons.lessons(self.lessons, seed, pool))

        start = self.start_folder(folder)
        write_folder = partial(pocket.write_folder, config=Qwen3Config.load(start), made_for=REVIEWED)
        course = Course(open_trainable(start, **self.how), rows, write_folder, pocket.vocabulary().index(pocket.PAD))
        return train(course, self.settings, folder, report)


@dataclass(frozen=True, slots=True)
class Calls(FromModel):
    """A pocket model with the vocabulary of calls, as a user of tools or a manager: the cold start of ParaManager."""

    settings: SftSettings
    """Settings of the training."""
    lessons: Literal["tools", "manager"] = "manager"
    """The taught role."""
    matched: float = MATCHED
    """Share of a manager's calls that the lessons give to a model that is described as good at them. At 0 its labels
    say nothing, and whom to ask is left to reinforcement learning."""

    def require(self) -> None:
        if self.lora is not None or self.dtype != "float32":
            raise UserError(
                "this training widens its model and trains all weights in float32: leave out lora and dtype"
            )
        FromModel.require(self)

    def run(self, folder: RunFolder, report: Report) -> Path:
        pocket_tools.write_folder(folder.path / "tokenizer")
        tokenizer = Tokenizer(folder.path / "tokenizer")

        def managing(seed: int, pool: int) -> Iterator[Row]:
            return map(row_of, rehearsals.lessons(seed, pool, tokenizer, matched=self.matched))

        def using(seed: int, pool: int) -> Iterator[Row]:
            return tool_lessons.lessons(seed, pool, tokenizer)

        model = pocket_tools.widened(self.start_folder(folder), self.settings.seed).to(resolve_device(self.device))
        rows = managing if self.lessons == "manager" else using
        write_folder = partial(pocket_tools.write_folder, lessons=self.lessons)
        course = Course(model, rows, write_folder, pocket.vocabulary().index(pocket.PAD))
        return train(course, self.settings, folder, report)


def _pocket_tokenizer(folder: Path) -> tuple[Tokenizer, frozenset[int]]:
    """The pocket model's tokenizer, written to a folder, and the tokens that end its texts."""
    pocket.write_folder(folder)
    tokenizer = Tokenizer(folder)
    return tokenizer, frozenset(tokenizer.eos_ids)


def pocket_course(
    seed: int, folder: Path, device: str, *, forks: bool = True, config: Qwen3Config = pocket.CONFIG
) -> Course:
    """The pocket model with fresh weights, and its rows. Its tokenizer is written to the folder."""
    tokenizer, (eos,) = _pocket_tokenizer(folder)

    def rows(seed: int, pool: int) -> Iterator[Row]:
        for traces in pocket.lessons(seed, pool, forks=forks):
            for trace in traces:
                yield row_of(trace, tokenizer.encode, eos)

    model = Qwen3(config)
    model.initialise(torch.Generator().manual_seed(seed))
    write_folder = partial(pocket.write_folder, config=config)
    return Course(model.to(resolve_device(device)), rows, write_folder, pocket.vocabulary().index(pocket.PAD))
