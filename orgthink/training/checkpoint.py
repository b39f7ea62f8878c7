"""Checkpoints: a Hugging Face model folder, and beside it what exact resumption needs.

    checkpoints/step-000500/model/{config.json, model.safetensors, tokenizer.json, …}
    checkpoints/step-000500/trainer.pt     optimizer
    checkpoints/step-000500/trainer.json   step, place in the data

A checkpoint is written under a temporary name and renamed, so a name that exists is whole.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from orgthink.errors import UserError
from orgthink.training.models import Trainable

RETAINED = 2
"""Older checkpoints are removed."""


def save(
    run: Path,
    step: int,
    model: Trainable,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Any],
    write: Callable[[Path], None],
) -> Path:
    """Write the checkpoint of a step. `write` adds everything of the model folder but the weights."""

    def fill(folder: Path) -> None:
        write(folder / "model")
        store(folder, model, optimizer)

    return put(run, step, fill, state)


def put(run: Path, step: int, fill: Callable[[Path], None], state: dict[str, Any] | None = None) -> Path:
    """Write the checkpoint of a step whole or not at all. `fill` writes into a folder that has an empty `model`."""
    folder = run / "checkpoints" / f"step-{step:06d}"
    temporary = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    (temporary / "model").mkdir(parents=True)
    fill(temporary)
    (temporary / "trainer.json").write_text(json.dumps({"step": step, **(state or {})}))
    shutil.rmtree(folder, ignore_errors=True)
    temporary.rename(folder)
    for old in saved(run)[:-RETAINED]:
        shutil.rmtree(old)
    return folder


def state(folder: Path) -> dict[str, Any]:
    """What a checkpoint remembers beside weights and optimizer: its step, the place in the data."""
    return json.loads((folder / "trainer.json").read_text())


def saved(run: Path) -> list[Path]:
    """Whole checkpoints of a run, oldest first."""
    return sorted((run / "checkpoints").glob("step-*"))


def store(folder: Path, model: Trainable, optimizer: torch.optim.Optimizer) -> None:
    """Write weights and optimizer into a folder that has a `model`."""
    model.save(folder / "model")
    torch.save(optimizer.state_dict(), folder / "trainer.pt")


def load(folder: Path, model: Trainable, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Put a checkpoint's weights and optimizer back; returns its state. UserError that names the folder if it is torn
    or another model's."""
    try:
        model.restore(folder / "model")
        optimizer.load_state_dict(torch.load(folder / "trainer.pt", weights_only=True))
        return state(folder)
    except (OSError, EOFError, ValueError, RuntimeError, UnpicklingError) as error:
        raise UserError(f"{folder} is no checkpoint of this training: {' '.join(str(error).split())}") from error
