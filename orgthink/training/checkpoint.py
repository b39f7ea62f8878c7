"""Checkpoints: a Hugging Face model folder and the state for exact resumption.

    checkpoints/step-000500/model/{config.json, model.safetensors, tokenizer.json, …}
    checkpoints/step-000500/trainer.pt     optimizer
    checkpoints/step-000500/trainer.json   step, position in the data

A checkpoint is written under a temporary name, brought to the disk and then renamed. One that goes is renamed before
it is removed. A folder with the final name is therefore complete. If the newest is damaged, the one before it serves.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from safetensors import SafetensorError

from orgthink.models.trainable import Trainable
from orgthink.util.errors import UserError
from orgthink.util.files import open_to_read, read_whole, require_unmoved, sync_folder, write_whole
from orgthink.util.terminal import reason, show
from orgthink.util.validation import plain, typed

T = TypeVar("T")

RETAINED = 2
"""Number of newest checkpoints that are kept unless a training says otherwise."""

_NAME = re.compile(r"step-([0-9]{6}|[1-9][0-9]{6,})")
"""As `put` writes it: a step has one name."""
_ABANDONED = (".step-*.partial", ".step-*.removed")
"""What a killed process leaves behind: a checkpoint that is not yet complete, one that is no longer."""


def put(
    run: Path,
    step: int,
    fill: Callable[[Path], None],
    state: dict[str, Any] | None = None,
    keep: int | None = RETAINED,
) -> Path:
    """Write the checkpoint of a step atomically. `fill` writes into a folder with an empty subfolder `model`.

    Then the older checkpoints are removed but for the `keep` newest ones (`None`: all), and so are those of later
    steps, which a damaged one may have left. OSError if it cannot be written, UserError if the run was moved: the
    others stay.
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
        _sync(temporary)
    except BaseException:
        require_unmoved(run)  # else it is not ours to remove
        shutil.rmtree(temporary, ignore_errors=True)  # on a full disk it would leave no room for anything else
        raise
    require_unmoved(run)  # that took long
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
    """A whole checkpoint that this setup cannot read: an older one would not help."""


def restored(run: Path, restore: Callable[[Path], T]) -> tuple[Path, T] | None:
    """The newest checkpoint that `restore` can read, and what that returned; `None` if there is no checkpoint.

    `restore` raises UserError for a damaged one, or ValueError for a number in it that cannot be: then the next older
    one serves, which is said. UserError of the newest one if all are damaged.
    """
    errors: list[UserError] = []
    for folder in reversed(saved(run)):
        try:
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
            show(f"orgthink: {errors[0]}; going on from {folder.name}", error=True)
        return folder, found
    if errors:
        raise errors[0]
    return None


def state(folder: Path) -> dict[str, Any]:
    """The content of `trainer.json`: the step and the position in the data. UserError if it is damaged."""
    file = folder / "trainer.json"
    try:
        found = json.loads(read_whole(file))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} cannot be read: {error}") from error
    if not isinstance(found, dict) or found.get("step") != _step(folder):
        raise UserError(f"{file} is not of step {_step(folder)}")
    return found


def store(folder: Path, model: Trainable, optimizer: torch.optim.Optimizer) -> None:
    """Write weights and optimizer into a folder with a subfolder `model`. OSError if they cannot be written."""
    try:
        model.save(folder / "model")
        torch.save(optimizer.state_dict(), folder / "trainer.pt")
    except (SafetensorError, RuntimeError) as error:  # what safetensors and torch make of a full disk
        raise OSError(f"{folder}: {' '.join(str(error).split())}") from error


def load(folder: Path, model: Trainable, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Restore weights and optimizer from a checkpoint; returns its state.

    UserError that names the folder if it is incomplete, damaged or of another model.
    """
    try:
        model.restore(folder / "model")
        if not all(bool(weight.isfinite().all()) for weight in model.parameters()):
            raise ValueError("its weights are not finite")
        load_optimizer(folder / "trainer.pt", optimizer)
        return state(folder)
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # damaged pickles raise anything
        raise UserError(f"{folder} is not a checkpoint of this training: {reason(error)}") from error


def load_optimizer(file: Path, optimizer: torch.optim.Optimizer) -> None:
    """Restore what an Adam optimizer has gathered. Its settings are those of this training, whatever the file says.

    ValueError for what it could not have gathered, which PyTorch takes and the next step stumbles over; damaged pickles
    raise anything.
    """
    with open_to_read(file) as stream:
        found = torch.load(stream, map_location="cpu", weights_only=True)
    own = optimizer.state_dict()["param_groups"]
    if [group["params"] for group in found["param_groups"]] != [group["params"] for group in own]:
        raise ValueError("its optimizer is of another model")
    weights = dict(enumerate(weight for group in optimizer.param_groups for weight in group["params"]))
    for number, gathered in found["state"].items():
        _require_gathered(gathered, weights[number].shape)
    optimizer.load_state_dict({"state": found["state"], "param_groups": own})


def _require_gathered(gathered: dict[str, Any], shape: torch.Size) -> None:
    """ValueError unless Adam could have gathered this for a weight of that shape."""
    if gathered.keys() != {"step", "exp_avg", "exp_avg_sq"}:
        raise ValueError("its optimizer is none of Adam's")
    shapes = {"step": torch.Size(), "exp_avg": shape, "exp_avg_sq": shape}
    if not all(isinstance(one, torch.Tensor) and one.shape == shapes[name] for name, one in gathered.items()):
        raise ValueError("its optimizer is of weights of another shape")
    if not all(one.is_floating_point() and one.isfinite().all() for one in gathered.values()):
        raise ValueError("its optimizer has gathered what is no finite number")
    if gathered["step"] < 1 or (gathered["exp_avg_sq"] < 0).any():
        raise ValueError("its optimizer counts no steps, or has a negative square")


def _step(folder: Path) -> int:
    return int(folder.name.partition("-")[2])


def _sync(folder: Path) -> None:
    """Bring everything in a folder to the disk: a power cut after the renaming could else leave files of zeros."""
    for parent, _, names in os.walk(folder):
        for name in names:
            with (Path(parent) / name).open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(Path(parent))


def _remove(folder: Path) -> None:
    """Remove a checkpoint. It loses its name first: half of one must not look like a whole one."""
    removed = folder.with_name(f".{folder.name}.removed")
    folder.rename(removed)
    _delete(removed)


def _delete(path: Path) -> None:
    """Delete a folder, or a link to one without what it points to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


MOST = 1 << 32
"""Largest size of a state, in bytes: it may hold everything that was sampled and is not trained on yet."""


def save_state(file: Path, state: Any) -> None:
    """Write a dataclass as JSON."""
    write_whole(file, json.dumps(plain(state)).encode())


def load_state(file: Path, cls: type[T], upgraded: Callable[[Any], Any] = lambda data: data) -> T:
    """Read a dataclass of type `cls`. `upgraded` converts the JSON values of older releases.

    UserError that names the file if it is damaged or holds something else.
    """
    try:
        data = json.loads(read_whole(file, MOST))
    except UserError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} cannot be read: {error}") from error
    return typed(cls, upgraded(data), file)


class Rates(Protocol):
    """Settings of a training with a warm-up."""

    @property
    def steps(self) -> int:
        """Number of steps."""
        ...

    @property
    def warmup(self) -> int:
        """Number of steps with linear warm-up."""
        ...

    @property
    def learning_rate(self) -> float:
        """Peak learning rate."""
        ...

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        ...


def say_start(settings: Rates, step: int, removed: int) -> None:
    """Say from which step a training goes on, and if its warm-up is never over.

    `removed` is the number of recorded steps that are done again.
    """
    if step >= settings.steps:
        return
    if step:
        show(f"orgthink: going on from step {step}", error=True)
    elif removed:
        show(f"orgthink: none of {removed} recorded steps was saved: beginning again", error=True)
    if settings.warmup > settings.steps:
        share = settings.rate(settings.steps - 1) / settings.learning_rate
        show(
            f"orgthink: the warm-up takes {settings.warmup} steps of {settings.steps}: the learning rate ends at "
            f"{share:.0%} of learning_rate; lower warmup if that is not meant",
            error=True,
        )


def say_saved(run: Path, step: int) -> None:
    """Say that nothing is lost of a training that an error ended."""
    show(f"orgthink: step {step} is saved: go on with orgthink train --resume {run}", error=True)


def say_recorded(run: Path, step: int, episodes: int) -> None:
    """Say where the episodes of a step are that an error ended."""
    show(
        f"orgthink: {episodes} episodes of step {step}, which failed, are recorded: look at them with "
        f"orgthink view {run} --step {step}",
        error=True,
    )
