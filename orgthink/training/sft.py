"""Supervised fine-tuning: cross-entropy on the trained tokens of rows.

The loop saves checkpoints, stops cleanly at Ctrl-C, and resumes exactly: a resumed run has the same metrics as an
uninterrupted one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from orgthink.models.trainable import Trainable
from orgthink.record.folder import RunFolder
from orgthink.training import checkpoint
from orgthink.training.checkpoint import say_saved, say_start
from orgthink.training.gradients import UNSOUND, Accumulator, cross_entropy_sum, gradient_norm
from orgthink.training.interrupt import interrupt
from orgthink.training.packing import Pack, most_tokens, packs
from orgthink.training.processes import broadcast, count, everywhere, open_parts, rank, split_state, total
from orgthink.training.rows import Cursor, Row, batches
from orgthink.util.errors import UserError, require_above_zero, require_at_least
from orgthink.util.settings import typed


@dataclass(frozen=True, slots=True)
class SftSettings:
    """Settings that determine the result, together with the data."""

    steps: int
    """Number of optimizer steps."""
    learning_rate: float = 2e-3
    """Peak learning rate, reached after the warm-up. Then it decays to 0 along half a cosine."""
    warmup: int = 150
    """Number of steps with linear warm-up."""
    batch_tokens: int = 5_000
    """Largest number of tokens in a batch; a longer row is a batch of its own."""
    pack_tokens: int = 1_024
    """Largest number of tokens in a forward pass. Each core computes such a pass."""
    batch_rows: int | None = None
    """Approximate number of query–response pairs in a batch, in place of `batch_tokens`; at most all of a data set. The
    pairs of a trace whose contexts continue each other are one row."""
    weight_decay: float = 0.05
    """Weight decay, applied to matrices only."""
    clip: float = 1.0
    """Largest gradient norm."""
    seed: int = 0
    """Seed of the weights and the data."""
    save_every: int = 500
    """Number of steps between checkpoints."""
    keep: int | None = checkpoint.RETAINED
    """Number of newest checkpoints that are kept; `None`: all."""

    report_every: ClassVar[int] = 100
    """Number of steps between two progress lines if the output is not a terminal."""

    def __post_init__(self) -> None:
        require_at_least(1, self, "steps", "batch_tokens", "batch_rows", "pack_tokens", "save_every", "keep")
        require_at_least(0, self, "warmup", "weight_decay")
        require_above_zero(self, "learning_rate", "clip")

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        progress = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))

    def progress_text(self, line: Mapping[str, Any]) -> str:
        """The most important metrics of a step, as one line for the user."""
        return (
            f"loss {line['loss']:.4f}  epoch {line['epoch']}  {line['trained_tokens'] / line['seconds']:,.0f} tokens/s"
        )


@dataclass(frozen=True, slots=True)
class Course:
    """A model and the rows to train it on."""

    model: Trainable
    """Model to train, on the device of the training."""
    rows: Callable[[int, int], Iterable[Row]]
    """Function of a seed and the index of an epoch that returns the rows of the epoch."""
    write_folder: Callable[[Path], None]
    """Function that writes all files of the model folder except the weights."""


def train(course: Course, settings: SftSettings, run: RunFolder, report: Callable[[dict[str, float]], None]) -> Path:
    """Train to the last step, from the newest checkpoint in `run` if there is one. Returns the last checkpoint.

    `report` gets the metrics of each step. At Ctrl-C the step ends, a checkpoint is saved, and KeyboardInterrupt is
    raised; a second Ctrl-C raises it at once. UserError if another process trains in the folder, or if the loss or its
    gradient is not finite: the last whole step is saved.
    """
    if count() > 1 and not hasattr(course.model, "unshard"):
        raise UserError("a model from scratch is trained by one process: start it without torchrun")
    learner = Learner(course.model, settings)
    step, cursor, folder = 0, Cursor(), run.path

    def restore(folder: Path) -> tuple[int, Cursor]:
        state = learner.load(folder)
        return state["step"], typed(Cursor, state.get("cursor"), folder / "trainer.json")

    with run.journal() as journal, interrupt(lambda: f"step {step + 1}") as interrupted:
        if found := checkpoint.restored(run.path, restore):
            folder, (step, cursor) = found
        say_start(settings, step, journal.rewind(step))
        saved = step
        stream = batches(course.rows, settings.seed, settings.batch_tokens, cursor, settings.batch_rows)

        def save(folder: Path) -> None:
            course.write_folder(folder / "model")
            learner.save(folder)

        def put() -> None:
            nonlocal folder, saved
            folder, saved = checkpoint.put(run.path, step, save, {"cursor": asdict(cursor)}, settings.keep), step

        @contextmanager
        def saving(*errors: type[Exception]) -> Iterator[None]:
            """Save the last whole step if one of these ends the training."""
            try:
                yield
            except errors:
                if step > saved:
                    put()
                    say_saved(run.path, step)
                raise

        while step < settings.steps:
            with saving(Exception):
                rows, after = next(stream)
            with saving(UserError):  # others may come in the middle of an update
                line = _step(learner, rows, settings, step)
            step, cursor = step + 1, after
            line["epoch"] = cursor.epoch + 1
            journal.log(**line)
            report(line)
            if step % settings.save_every == 0 or step == settings.steps or interrupted.is_set():
                put()
            if interrupted.is_set() and step < settings.steps:
                raise KeyboardInterrupt
    return folder


def _step(learner: Learner, rows: list[Row], settings: SftSettings, step: int) -> dict[str, float]:
    """Take one optimizer step. Returns its metrics. UserError before it if loss or gradient is not finite."""
    started = time.perf_counter()
    parts = packs(rows, most_tokens(learner.model, settings.pack_tokens), max(learner.gradients.workers, count()))
    loss, norm = learner.step(parts, step)
    return {
        "step": step + 1,
        "loss": loss,
        "learning_rate": settings.rate(step),
        "gradient_norm": norm,
        "trained_tokens": sum(len(pack.targets) for pack in parts),
        "computed_tokens": sum(len(pack.ids) for pack in parts),
        "seconds": time.perf_counter() - started,
    }


class Learner:
    """Model and optimizer of a fine-tuning. If several processes train, each has its parts of both."""

    def __init__(self, model: Trainable, settings: SftSettings) -> None:
        self.model, self._settings = model, settings
        self._optimizer, self.gradients = _optimizer(model, settings), Accumulator(model)
        split_state(self._optimizer)

    @everywhere
    def step(self, parts: list[Pack[Row]], step: int) -> tuple[float, float]:
        """Take an optimizer step with the gradient of all packs. Returns the mean loss of a trained token and the
        gradient's norm. UserError before the step if one of them is not finite."""
        torch.manual_seed((self._settings.seed * 1_000_003 + step) % 2**63)  # a resumed run has the same dropout
        tokens = sum(len(pack.targets) for pack in parts)
        # All processes compute equally many packs, and FSDP takes the mean of their gradients.
        weighted = [*((pack, count()) for pack in parts), *((parts[-1], 0) for _ in range(-len(parts) % count()))]

        def share(model: Trainable, part: tuple[Pack[Row], int]) -> tuple[Tensor, float]:
            pack, weight = part
            value = cross_entropy_sum(model, pack) / tokens * weight
            return value, value.item()

        loss = total(sum(self.gradients.add(weighted[rank() :: count()], share))) / count()
        norm = gradient_norm(_trained(self.model), self._settings.clip)
        if not math.isfinite(loss):
            raise UserError(f"the loss of step {step + 1} is {loss}, over {tokens} trained tokens: {UNSOUND}")
        for group in self._optimizer.param_groups:
            group["lr"] = self._settings.rate(step)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return loss, norm

    @everywhere
    def save(self, folder: Path) -> None:
        """Write weights and optimizer. OSError if they cannot be written."""
        if rank():  # it only sends its parts
            self.model.state_dict(), self._optimizer.state_dict()
        else:
            checkpoint.store(folder, self.model, self._optimizer)

    @everywhere
    def load(self, folder: Path) -> dict[str, Any]:
        """Restore weights and optimizer; returns the checkpoint's state. UserError: see `checkpoint.load`."""
        return checkpoint.load(folder, self.model, self._optimizer)


def follow() -> None:
    """Train along with the first process, until it ends."""
    if (start := broadcast()) is None:
        return
    learner = Learner(open_parts(*start), start[-1])
    while (order := broadcast()) is not None:
        name, *given = order
        with suppress(UserError):  # the first process has the same one
            getattr(learner, name)(*given)


def _trained(model: Trainable) -> list[torch.Tensor]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _optimizer(model: Trainable, settings: SftSettings) -> torch.optim.Optimizer:
    parameters = _trained(model)
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(0.9, 0.98), fused=True)
