"""Supervised training: cross-entropy on the tokens of a row that are trained.

The loop saves as it goes, stops cleanly at Ctrl-C, and resumes exactly: the metrics of an interrupted run
are those of an uninterrupted one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from orgthink.engines.qwen3 import Qwen3
from orgthink.store import RunFolder
from orgthink.training import checkpoint
from orgthink.training.batches import Cursor, batches, collate
from orgthink.training.interrupt import interrupt
from orgthink.training.losses import cross_entropy_sum, gradient_norm
from orgthink.training.rows import Row


@dataclass(frozen=True, slots=True)
class SftSettings:
    """What decides the result, beside the data."""

    steps: int
    """Optimizer steps."""
    learning_rate: float = 2e-3
    """At its highest, after the warm-up; then half a cosine down to nothing."""
    warmup: int = 150
    """Steps of linear warm-up."""
    batch_tokens: int = 5_000
    """Tokens of a batch, padding included."""
    weight_decay: float = 0.05
    """On matrices only."""
    clip: float = 1.0
    """Largest gradient norm."""
    seed: int = 0
    """Of the weights and the data."""
    save_every: int = 500
    """Steps between checkpoints."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch_tokens", "save_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least 1")

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        progress = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))


@dataclass(frozen=True, slots=True)
class Course:
    """What is trained, on what."""

    model: Qwen3
    """Weights to train, on the device to train on."""
    rows: Callable[[int, int], Iterator[Row]]
    """An endless stream of rows for a seed and the number of a pool."""
    write_folder: Callable[[Path], None]
    """Writes everything of the model folder but the weights."""
    pad_id: int
    """Token that fills rows up."""


def train(course: Course, settings: SftSettings, run: RunFolder, report: Callable[[dict[str, float]], None]) -> Path:
    """Train to the last step, from the newest checkpoint in `run` if there is one; returns the last checkpoint.

    `report` gets the metrics of each step. Ctrl-C ends the step, saves, and is raised; a second one is raised at
    once. UserError if another process trains in the folder.
    """
    model = course.model
    optimizer = _optimizer(model, settings)
    with run.journal() as journal, interrupt() as interrupted:
        step, cursor, folder = 0, Cursor(), run.path
        if found := checkpoint.saved(run.path):
            folder = found[-1]
            state = checkpoint.load(folder, model, optimizer)
            step, cursor = state["step"], Cursor(**state["cursor"])
        journal.rewind(step)
        stream = batches(course.rows, settings.seed, settings.batch_tokens, cursor)
        while step < settings.steps:
            rows, cursor = next(stream)
            line = _step(course, optimizer, rows, settings, step)
            step += 1
            journal.log(**line)
            report(line)
            if step % settings.save_every == 0 or step == settings.steps or interrupted.is_set():
                state = {"cursor": asdict(cursor)}
                folder = checkpoint.save(run.path, step, model, optimizer, state, course.write_folder)
            if interrupted.is_set() and step < settings.steps:
                raise KeyboardInterrupt
    return folder


def _step(
    course: Course, optimizer: torch.optim.Optimizer, rows: list[Row], settings: SftSettings, step: int
) -> dict[str, float]:
    """One optimizer step; its metrics."""
    started = time.perf_counter()
    device = course.model.embedding.weight.device
    ids, trained = (tensor.to(device) for tensor in collate(rows, course.pad_id))
    tokens = int(trained[:, 1:].sum())
    loss = cross_entropy_sum(course.model, ids, trained) / tokens
    optimizer.zero_grad()
    loss.backward()
    norm = gradient_norm(list(course.model.parameters()), settings.clip)
    for group in optimizer.param_groups:
        group["lr"] = settings.rate(step)
    optimizer.step()
    seconds = time.perf_counter() - started
    return {
        "step": step + 1,
        "loss": loss.item(),
        "learning_rate": settings.rate(step),
        "gradient_norm": norm,
        "trained_tokens": tokens,
        "padding": 1 - sum(map(len, rows)) / ids.numel(),
        "seconds": seconds,
    }


def _optimizer(model: Qwen3, settings: SftSettings) -> torch.optim.Optimizer:
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(0.9, 0.98), fused=True)
