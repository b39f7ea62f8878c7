"""The model and the data that a training starts from. A resumed training needs them unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from orgthink.engines import EngineSpec, engine_spec
from orgthink.models.adapters import base_of, is_adapter, require_same
from orgthink.models.lora import LoraSettings
from orgthink.models.processor import fastest_dtype
from orgthink.models.tokenizer import Tokenizer
from orgthink.models.trainable import Trainable, open_trainable, resolve_device
from orgthink.record.folder import RunFolder
from orgthink.tasks import file_of
from orgthink.training import checkpoint
from orgthink.training.optimization import Optimization
from orgthink.training.processes import count, open_parts
from orgthink.util.errors import UserError, user_input
from orgthink.util.files import sha256
from orgthink.util.tabular import json_object
from orgthink.util.terminal import show


def require_unchanged(
    folder: RunFolder, name: str, source: object, content: Mapping[str, Any], further: Mapping[str, Any] | None = None
) -> None:
    """Remember the content that a training learns from, with `further` facts. UserError if it learned from another.

    Without a checkpoint nothing was learned yet: it begins again, with what is there now.
    """
    former = folder.path / name
    with folder.journal(redo=None):  # no other process may train there, nor have begun another run
        known = json_object(former) if former.is_file() else content
        if checkpoint.saved(folder.path) and not content.items() <= known.items():
            raise UserError(f"{source} has changed since {folder.path} was started: start a new training")
        folder.write_json(name, {**content, **(further or {})})


def require_same_problems(folder: RunFolder, task: str) -> None:
    """UserError if the file of a task, if it has one, is not that with which the training began."""
    if (file := file_of(task)) is not None:
        require_unchanged(folder, "task.json", file, {"sha256": sha256(file)})


@dataclass(frozen=True, slots=True, kw_only=True)
class FromModel:
    """Common fields of trainings that start from an existing model."""

    model: str | None = None
    """Name of a shipped model or path of a model folder to start from; `None`: the user must give `--model`."""
    lora: LoraSettings | None = None
    """Low-rank adapter to train instead of the weights; `None`: all weights are trained."""
    template: dict[str, Any] = field(default_factory=dict)
    """Arguments of the model's chat template, such as `enable_thinking`. The trained model keeps them."""
    device: str = "auto"
    """`cpu`, `cuda`, or `auto` for whichever is available."""
    settings: Any
    """Settings of the training."""

    def how(self, folder: Path) -> dict[str, Any]:
        """Keyword arguments that open the model of this folder for training."""
        return {"lora": self.lora, "device": resolve_device(self.device), "seed": self.settings.seed}

    @property
    def former_adapter(self) -> Path | None:
        """The adapter that training goes on with: the model to start from, if it is one and an adapter is trained."""
        return Path(self.model) if self.lora and self.model and is_adapter(Path(self.model)) else None

    def open(self, folder: Path) -> Trainable:
        """Open the model of this folder for training, with the adapter that training goes on with."""
        how = self.how(folder)
        if count() > 1 and (self.lora is not None or isinstance(self.settings, Optimization)):
            raise UserError(
                "torchrun is for fine-tuning of whole weights: start this training without it; reinforcement learning "
                "on several GPUs needs --backend verl"
            )
        model = (
            open_trainable(folder, **how)
            if count() == 1
            else open_parts(folder, how | {"device": "cpu"}, how["device"], self.settings)
        )
        if self.former_adapter is not None:
            with user_input():
                model.restore_adapter(self.former_adapter)
        return model

    def require(self) -> None:
        folder = model_folder(self.model)
        if self.lora is not None and (former := self.former_adapter) is not None:
            require_same(former, self.lora, self.template)
        if self.template:
            Tokenizer(folder, self.template)
        resolve_device(self.device)

    def start_folder(self, folder: RunFolder) -> Path:
        """The folder of the model that a training opens. UserError if it needs the first weights and they changed."""
        former = self.former_adapter
        base = model_folder(self.model if former is None else base_of(former))
        if self.lora is not None or (isinstance(self.settings, Optimization) and self.settings.loss.kl > 0):
            places = [base] if former is None else [base, former]
            weights = {file.name: sha256(file) for place in places for file in place.glob("*.safetensors")}
            require_unchanged(folder, "base.json", base, weights)
        return base


@dataclass(frozen=True, slots=True, kw_only=True)
class WithGradients(FromModel):
    """Common fields of trainings that compute gradients of an existing model."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """Data type of the weights."""
    mixed_precision: bool | None = None
    """Whether to compute in bfloat16, with weights, gradients and optimizer in float32; `None`: for weights of at least
    100 MB in float32 on a device that is fast in bfloat16."""
    gradient_checkpointing: bool = False
    """Whether the backward pass computes each layer again, in place of storing what it needs of all layers: much less
    memory, about a third more time. verl does so on GPUs anyway."""

    def how(self, folder: Path) -> dict[str, Any]:
        """Keyword arguments that open the model of this folder for training."""
        own, dtype, mixed = FromModel.how(self, folder), getattr(torch, self.dtype), self.mixed_precision
        if mixed is None:
            mixed = dtype is torch.float32 and fastest_dtype(folder, own["device"]) is torch.bfloat16
        own["dtype"] = dtype
        return {**own, "mixed_precision": mixed, "gradient_checkpointing": self.gradient_checkpointing}

    def open(self, folder: Path) -> Trainable:
        """The same. A line says if it computes in bfloat16 and was not told to."""
        if self.mixed_precision is None and self.how(folder)["mixed_precision"]:
            other = "mixed_precision=false: all in float32"
            show(f"orgthink: training in bfloat16, with weights in float32 ({other})", error=True)
        return FromModel.open(self, folder)

    def require(self) -> None:
        FromModel.require(self)
        if self.dtype != "float32" and self.lora is None:
            raise UserError(
                f"in {self.dtype} most updates of whole weights are rounded away: train with --lora 16, or "
                "mixed_precision=true in place of dtype"
            )


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
    if spec.preset_values.get("adapters"):
        raise UserError(f"{spec.folder} has adapters of roles: go on with --resume RUN, or name their base")
    if (spec.folder / "episodes.jsonl").is_file():
        raise UserError(f"{spec.folder} is a run, not a model folder{_within(spec.folder)}")
    return spec.folder


def _within(folder: Path) -> str:
    """The model in a checkpoint or a run, for who named that."""
    models = sorted([*folder.glob("model/config.json"), *folder.glob("checkpoints/step-*/model/config.json")])
    return f": name {models[-1].parent}" if models else ""
