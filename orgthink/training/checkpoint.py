"""Checkpoints: a Hugging Face model folder and the state for exact resumption.

    checkpoints/step-000500/model/{config.json, model.safetensors, tokenizer.json, …}
    checkpoints/step-000500/trainer.pt     optimizer
    checkpoints/step-000500/trainer.json   step, position in the data

A checkpoint is written under a temporary name and then renamed. A folder with the final name is therefore complete.
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
"""Number of newest checkpoints that are kept."""


def put(run: Path, step: int, fill: Callable[[Path], None], state: dict[str, Any] | None = None) -> Path:
    """Write the checkpoint of a step atomically. `fill` writes into a folder with an empty subfolder `model`."""
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
    """The content of `trainer.json`: the step and the position in the data."""
    return json.loads((folder / "trainer.json").read_text())


def saved(run: Path) -> list[Path]:
    """Complete checkpoints of a run, oldest first."""
    return sorted((run / "checkpoints").glob("step-*"))


def store(folder: Path, model: Trainable, optimizer: torch.optim.Optimizer) -> None:
    """Write weights and optimizer into a folder with a subfolder `model`."""
    model.save(folder / "model")
    torch.save(optimizer.state_dict(), folder / "trainer.pt")


def load(folder: Path, model: Trainable, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Restore weights and optimizer from a checkpoint; returns its state.

    UserError that names the folder if it is incomplete or of another model.
    """
    try:
        model.restore(folder / "model")
        optimizer.load_state_dict(torch.load(folder / "trainer.pt", map_location="cpu", weights_only=True))
        return state(folder)
    except (OSError, EOFError, ValueError, RuntimeError, UnpicklingError) as error:
        raise UserError(f"{folder} is not a checkpoint of this training: {' '.join(str(error).split())}") from error
