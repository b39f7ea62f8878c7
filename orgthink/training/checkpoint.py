"""Checkpoints: a Hugging Face model folder and the state for exact resumption.

    checkpoints/step-000500/model/{config.json, model.safetensors, tokenizer.json, …}
    checkpoints/step-000500/trainer.pt     optimizer
    checkpoints/step-000500/trainer.json   step, position in the data

A checkpoint is written under a temporary name, synced and renamed, and renamed again before it is removed. So a folder
with the final name is complete. Each of its folders has the digests of its files in SHA256SUMS. If the newest
checkpoint is damaged, the previous one is used.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError

from orgthink.models.trainable import Trainable, say_made_for
from orgthink.util.errors import UserError, explained
from orgthink.util.files import (
    open_to_read,
    read_whole,
    require_intact,
    require_unmoved,
    sync_folder,
    write_sums,
    write_whole,
)
from orgthink.util.settings import plain, typed
from orgthink.util.terminal import reason, show

T = TypeVar("T")

RETAINED = 2
"""Number of newest checkpoints that are kept unless a training says otherwise."""

_NAME = re.compile(r"step-([0-9]{6}|[1-9][0-9]{6,})")
"""Names that `put` writes."""
_ABANDONED = (".step-*.partial", ".step-*.removed")
"""Incomplete checkpoints that a killed process leaves behind."""


def put(
    run: Path,
    step: int,
    fill: Callable[[Path], None],
    state: dict[str, Any] | None = None,
    keep: int | None = RETAINED,
) -> Path:
    """Write the checkpoint of a step atomically. `fill` writes into a folder with an empty subfolder `model`.

    Then it removes older checkpoints except the `keep` newest ones (`None`: all), and checkpoints of later steps, which
    are damaged. OSError if it cannot be written, UserError if the run was moved: then the other checkpoints stay.
    """
    require_unmoved(run)
    place = run / "checkpoints"
    folder, temporary = place / f"step-{step:06d}", place / f".step-{step:06d}.partial"
    if place.is_symlink():
        raise UserError(f"{place} is a link: checkpoints are written into the run folder only")
    for pattern in _ABANDONED:
        for abandoned in place.glob(pattern):
            _delete(abandoned)
    try:
        (temporary / "model").mkdir(parents=True)
        fill(temporary)
        (temporary / "trainer.json").write_text(json.dumps({"step": step, **(state or {})}))
        write_sums(temporary)
        _sync(temporary)
    except BaseException:
        require_unmoved(run)  # the folder may be of another run now
        shutil.rmtree(temporary, ignore_errors=True)  # free the space on a full disk
        raise
    require_unmoved(run)
    if folder.exists() or folder.is_symlink():
        _remove(folder)
    temporary.rename(folder)
    sync_folder(place)
    until = [other for other in saved(run) if _step(other) <= step]
    for other in saved(run):
        if other not in (until if keep is None else until[-keep:]):
            _remove(other)
    return folder


def saved(run: Path) -> list[Path]:
    """Complete checkpoints of a run, oldest first."""
    found = (run / "checkpoints").glob("step-*")
    return sorted((one for one in found if _NAME.fullmatch(one.name) and one.is_dir()), key=_step)


class OtherSetup(UserError):
    """A complete checkpoint that this setup cannot read. An older one would not help."""


def restored(run: Path, restore: Callable[[Path], T]) -> tuple[Path, T] | None:
    """The newest checkpoint that `restore` can read, and what that returned; `None` if there is no checkpoint.

    If `restore` raises UserError or ValueError, the next older checkpoint is used, with a message. UserError of the
    newest one if all are damaged.
    """
    errors: list[UserError] = []
    for folder in reversed(saved(run)):
        try:
            require_intact(folder)
            found = restore(folder)
        except OtherSetup:
            raise
        except UserError as error:
            errors.append(error)
            continue
        except ValueError as error:
            errors.append(UserError(f"{folder} is not a checkpoint of this training: {reason(error)}"))
            continue
        if errors:
            show(f"orgthink: {errors[0]}; continuing from {folder.name}", error=True)
        return folder, found
    if errors:
        raise errors[0]
    return None


def state(folder: Path) -> dict[str, Any]:
    """The content of `trainer.json`: the step and the position in the data. UserError if it is damaged."""
    file = folder / "trainer.json"
    found = _json(file)
    if not isinstance(found, dict) or found.get("step") != _step(folder):
        raise UserError(f"{file} is not of step {_step(folder)}")
    return found


def store(folder: Path, model: Trainable, optimizer: torch.optim.Optimizer | None) -> None:
    """Write weights, and an optimizer, into a folder with a subfolder `model`. OSError if they cannot be written."""
    try:
        model.save(folder / "model")
        say_made_for(folder / "model", {})  # the adapter is new: its folder has no orgthink.json yet
        if optimizer is not None:
            torch.save(optimizer.state_dict(), folder / "trainer.pt")
    except (SafetensorError, RuntimeError) as error:  # a full disk
        raise OSError(f"{folder}: {' '.join(str(error).split())}") from error


def load(folder: Path, model: Trainable, optimizer: torch.optim.Optimizer | None) -> dict[str, Any]:
    """Restore weights and optimizer from a checkpoint; returns its state.

    UserError that names the folder if it is incomplete, damaged or of another model.
    """
    try:
        model.restore(folder / "model")
        if optimizer is not None:
            load_optimizer(folder / "trainer.pt", optimizer)
        return state(folder)
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # a damaged pickle raises any exception
        raise UserError(f"{folder} is not a checkpoint of this training: {reason(error)}") from error


def load_optimizer(file: Path, optimizer: torch.optim.Optimizer) -> None:
    """Restore the state of an optimizer, but not its settings: those are of this training.

    ValueError for another model's state. A damaged pickle raises any exception.
    """
    try:
        with open_to_read(file) as stream:
            found = torch.load(stream, map_location="cpu", weights_only=True)
    except UnpicklingError as error:  # its message advises to run what the file holds
        raise ValueError(f"{file.name} is damaged, or holds other things than the state of an optimizer") from error
    own = optimizer.state_dict()["param_groups"]
    if [group["params"] for group in found["param_groups"]] != [group["params"] for group in own]:
        raise ValueError("its optimizer is of another model")
    optimizer.load_state_dict({"state": found["state"], "param_groups": own})


def _step(folder: Path) -> int:
    return int(folder.name.partition("-")[2])


def _sync(folder: Path) -> None:
    """Sync all files of a folder. Otherwise a power cut after the renaming could leave empty files."""
    for parent, _, names in os.walk(folder):
        for name in names:
            with (Path(parent) / name).open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(Path(parent))


def _remove(folder: Path) -> None:
    """Remove a checkpoint. It is renamed first, so that a partly removed one is never read."""
    removed = folder.with_name(f".{folder.name}.removed")
    folder.rename(removed)
    _delete(removed)


def _delete(path: Path) -> None:
    """Delete a folder, or a link but not its target."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


MOST = 1 << 32
"""Largest size of a state file, in bytes: it may hold all sampled tokens that are not trained on yet."""


def save_state(file: Path, state: Any) -> None:
    """Write a dataclass as JSON."""
    write_whole(file, json.dumps(plain(state)).encode())


def load_state(file: Path, cls: type[T]) -> T:
    """Read a dataclass of type `cls`. UserError that names the file if it is damaged or holds something else."""
    return typed(cls, _json(file), file)


def _json(file: Path) -> Any:
    """The JSON in a file. UserError that names the file if it cannot be read."""
    with explained(f"{file} cannot be read", OSError, ValueError, RecursionError):
        return json.loads(read_whole(file, MOST))


def say_start(settings: Any, step: int, removed: int) -> None:
    """Print the step from which a training continues.

    `removed` is the number of recorded steps that are repeated.
    """
    if step >= settings.steps:
        return
    if step:
        show(f"orgthink: continuing from step {step}", error=True)
    elif removed:
        show(f"orgthink: none of {removed} recorded steps was saved: starting again", error=True)


def say_saved(run: Path, step: int) -> None:
    """Print how to continue a training that an error ended."""
    show(f"orgthink: step {step} is saved: continue with orgthink train --resume {run}", error=True)
