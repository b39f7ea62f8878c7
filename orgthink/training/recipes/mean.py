"""The mean of several models' weights, which often errs less than each of them where little was trained.

Of models that one was trained into, it is a model soup (Wortsman et al. 2022); of a model before and after a training,
WiSE-FT (Wortsman et al. 2022). Models of other origins have no useful mean.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from orgthink.models.trainable import ADAPTER
from orgthink.record.folder import RunFolder
from orgthink.training.recipes.base_model import model_folder
from orgthink.util.errors import UserError
from orgthink.util.files import locked

WEIGHTS = "*.safetensors"


@dataclass(frozen=True, slots=True)
class MeanSettings:
    """Which models, and how much of each."""

    models: tuple[str, ...] = ()
    """Names of shipped models or paths of model folders. The result has the files of the first one."""
    weights: tuple[float, ...] = ()
    """Weight of each, from 0 on; they are divided by their sum. Empty: all weigh the same."""
    report_every: ClassVar[int] = 1
    """Steps between two lines of progress."""

    def __post_init__(self) -> None:
        if self.weights and len(self.weights) != len(self.models):
            raise ValueError(f"there are {len(self.weights)} weights for {len(self.models)} models: each needs one")
        if not all(math.isfinite(weight) and weight >= 0 for weight in self.weights):
            raise ValueError("a weight is below 0 or no number")
        if self.weights and not sum(self.weights):
            raise ValueError("all weights are 0")

    @property
    def steps(self) -> int:
        """One: nothing is trained."""
        return 1

    def progress_text(self, line: Mapping[str, Any]) -> str:
        return f"the mean of {len(self.models)} models"

    @property
    def shares(self) -> list[float]:
        """Share of each model, 1 together."""
        weights = self.weights or (1.0,) * len(self.models)
        return [weight / sum(weights) for weight in weights]


@dataclass(frozen=True, slots=True)
class Mean:
    """Makes one model of several of the same shape."""

    settings: MeanSettings = field(default_factory=MeanSettings)
    """Which models, and how much of each."""
    device: str = "cpu"
    """Every training has one; a mean is computed on the CPU wherever that is."""

    @property
    def steps(self) -> int:
        return self.settings.steps

    def require(self) -> None:
        if not self.settings.models:
            raise UserError('name the models: --set \'models=["FOLDER", "FOLDER"]\'')
        folders = [model_folder(name) for name in self.settings.models]
        for folder in folders:
            if _files(folder) != _files(folders[0]) or not _files(folder):
                raise UserError(f"{folder} and {folders[0]} do not have the same files of weights ({WEIGHTS})")

    def run(self, folder: RunFolder, report: Callable[[dict[str, Any]], None]) -> Path:
        """Write the model's folder. Returns the folder of the run. UserError for models of another shape."""
        self.require()
        models = [model_folder(name) for name in self.settings.models]
        made, unfinished = folder.path / "model", folder.path / ".model"
        with locked(folder.path):
            shutil.rmtree(unfinished, ignore_errors=True)
            shutil.copytree(models[0], unfinished, ignore=shutil.ignore_patterns(WEIGHTS, ADAPTER))
            for name in _files(models[0]):
                mean = _mean([model / name for model in models], self.settings.shares)
                save_file(mean, unfinished / name, metadata={"format": "pt"})
            shutil.rmtree(made, ignore_errors=True)
            unfinished.rename(made)
        report({"step": 1})
        return folder.path


def _files(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.glob(WEIGHTS))


def _mean(files: list[Path], shares: list[float]) -> dict[str, Tensor]:
    """The mean of each tensor, computed in float64 and stored as the first file has it."""
    with ExitStack() as stack:
        try:
            opened = [stack.enter_context(safe_open(file, framework="pt")) for file in files]
            names = [set(each.keys()) for each in opened]
        except SafetensorError as error:
            raise UserError(f"{files[0].name} of a model is damaged: {error}") from error
        if any(each != names[0] for each in names):
            raise UserError(f"{files[0]} has other tensors than the same file of another model")
        return {name: _mean_of(name, [each.get_tensor(name) for each in opened], shares) for name in sorted(names[0])}


def _mean_of(name: str, tensors: list[Tensor], shares: list[float]) -> Tensor:
    first = tensors[0]
    if any(each.shape != first.shape for each in tensors):
        raise UserError(f"{name} has another shape in another model: {', '.join(str(tuple(t.shape)) for t in tensors)}")
    total = torch.zeros(first.shape, dtype=torch.float64)
    for tensor, share in zip(tensors, shares, strict=True):
        total += share * tensor.double()
    return total.to(first.dtype)


MEAN = Mean()
"""The mean of the models that its settings name."""
