"""Trainings that start from an existing model: where it lies, and what is opened in its place when they go on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError, safe_open

from orgthink.engines import EngineSpec, engine_spec
from orgthink.models.trainable import LoraSettings, resolve_device, torch_dtype
from orgthink.record.folder import RunFolder
from orgthink.training import checkpoint
from orgthink.training.optimization import Optimization
from orgthink.training.recipes.unchanged import require_same_weights
from orgthink.util.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class FromModel:
    """Common fields of trainings that start from an existing model."""

    model: str | None = None
    """Name of a shipped model or path of a model folder to start from; `None`: the user must give `--model`."""
    lora: LoraSettings | None = None
    """Low-rank adapter to train instead of the weights; `None`: all weights are trained."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Data type of the weights."""
    device: str = "auto"
    """`cpu`, `cuda`, or `auto` for whichever is available."""
    settings: Any
    """Settings of the training."""

    @property
    def steps(self) -> int:
        return self.settings.steps

    @property
    def how(self) -> dict[str, Any]:
        """Keyword arguments that open the model for training, for `row_course` and similar functions."""
        device, dtype = resolve_device(self.device), torch_dtype(self.dtype)
        return {"lora": self.lora, "dtype": dtype, "device": device, "seed": self.settings.seed}

    def require(self) -> None:
        model_folder(self.model)
        resolve_device(self.device)
        if self.dtype != "float32" and self.lora is None:
            ways = "--lora 16" + (
                ", or mixed_precision=true in place of dtype" if hasattr(self, "mixed_precision") else ""
            )
            raise UserError(f"in {self.dtype} most updates of whole weights are rounded away: train with {ways}")

    def start_folder(self, folder: RunFolder) -> Path:
        """The folder of the model that a training opens, see `start_folder`."""
        return start_folder(self.model, folder, self._needs_base)

    @property
    def _needs_base(self) -> str | None:
        """What needs the weights of the base beside those of a checkpoint; `None` if nothing does."""
        if self.lora is not None:
            return "the adapter"
        return "loss.kl" if isinstance(self.settings, Optimization) and self.settings.loss.kl > 0 else None


def start_folder(model: str | None, folder: RunFolder, needed_by: str | None = None) -> Path:
    """The folder of the model that a training opens: the base, or the newest checkpoint's where the base is gone.

    `needed_by` names what needs the base's weights beside those of a checkpoint. UserError if something does, and they
    are gone or others than at the beginning.
    """
    try:
        base = model_folder(model)
    except UserError:
        if not (saved := checkpoint.saved(folder.path)):
            raise
        if needed_by is not None:
            gone = f"{model}, with which {folder.path} began, is gone"
            raise UserError(f"{gone}, and {needed_by} needs its weights: put it back there") from None
        return next((each for each in reversed(saved) if _opens(each / "model")), saved[-1]) / "model"
    if needed_by is not None:
        require_same_weights(folder, base)
    return base


def _opens(folder: Path) -> bool:
    """Whether the weights of a folder can be read: where those of the newest checkpoint cannot, an older one serves."""
    try:
        for file in folder.glob("*.safetensors"):
            with safe_open(file, "pt") as weights:
                weights.keys()
    except (OSError, SafetensorError):
        return False
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def model_folder(model: str | None) -> Path:
    """The folder of a model, given by name or path. UserError if there is no such folder."""
    if model is None:
        raise UserError("this recipe starts from your own model: name its folder with --model")
    spec: EngineSpec = engine_spec(model)
    if spec.url is not None or spec.folder is None:
        kind = "on a server" if spec.url is not None else "not a folder"
        raise UserError(f"{model} is {kind}: training needs a model folder")
    if not (spec.folder / "config.json").is_file():
        raise UserError(f"{spec.folder} is not a model folder: it has no config.json{_within(spec.folder)}")
    if (spec.folder / "episodes.jsonl").is_file():
        raise UserError(f"{spec.folder} is a run, not a model folder{_within(spec.folder)}")
    return spec.folder


def _within(folder: Path) -> str:
    """The model in a checkpoint or a run, for who named that."""
    models = sorted([*folder.glob("model/config.json"), *folder.glob("checkpoints/step-*/model/config.json")])
    return f": name {models[-1].parent}" if models else ""
