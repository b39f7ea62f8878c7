"""Supervised training: cross-entropy on the tokens of a row that are trained.

The loop saves as it goes, stops cleanly at Ctrl-C, and resumes exactly: the metrics of an interrupted run
are those of an uninterrupted one.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from orgthink.engines.qwen3 import Qwen3
from orgthink.training import checkpoint
from orgthink.training.batches import Cursor, batches, collate
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
class Lesson:
    """What is trained, on what."""

    model: Qwen3
    """Weights to train, on the device to train on."""
    rows: Callable[[int, int], Iterator[Row]]
    """An endless stream of rows for a seed and the number of a pool."""
    write_folder: Callable[[Path], None]
    """Writes everything of the model folder but the weights."""
    pad_id: int
    """Token that fills rows up."""


def train(lesson: Lesson, settings: SftSettings, run: Path, report: Callable[[dict[str, float]], None]) -> Path:
    """Train to the last step, from the newest checkpoint in `run` if there is one; returns the last checkpoint.

    `report` gets the metrics of each step. Interrupting saves a checkpoint first.
    """
    model = lesson.model
    optimizer = _optimizer(model, settings)
    step, cursor = 0, Cursor()
    if found := checkpoint.saved(run):
        state = checkpoint.load(found[-1], model, optimizer)
        step, cursor = state["step"], Cursor(**state["cursor"])
    metrics = _reopen(run / "metrics.jsonl", step)
    folder = found[-1] if found else run

    def save() -> Path:
        return checkpoint.save(run, step, model, optimizer, {"cursor": asdict(cursor)}, lesson.write_folder)

    stream = batches(lesson.rows, settings.seed, settings.batch_tokens, cursor)
    with metrics:
        try:
            while step < settings.steps:
                rows, after = next(stream)
                line = _step(lesson, optimizer, rows, settings, step)
                step, cursor = step + 1, after
                print(json.dumps(line), file=metrics, flush=True)
                report(line)
                if step % settings.save_every == 0 or step == settings.steps:
                    folder = save()
        except KeyboardInterrupt:
            save()
            raise
    return folder


def _step(
    lesson: Lesson, optimizer: torch.optim.Optimizer, rows: list[Row], settings: SftSettings, step: int
) -> dict[str, float]:
    """One optimizer step; its metrics."""
    started = time.perf_counter()
    device = lesson.model.embedding.weight.device
    ids, trained = (tensor.to(device) for tensor in collate(rows, lesson.pad_id))
    tokens = int(trained[:, 1:].sum())
    loss = cross_entropy_sum(lesson.model, ids, trained) / tokens
    optimizer.zero_grad()
    loss.backward()
    norm = gradient_norm(list(lesson.model.parameters()), settings.clip)
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


def _reopen(file: Path, step: int):
    """The metrics file, cut back to the step that is resumed from."""
    file.parent.mkdir(parents=True, exist_ok=True)
    kept = file.read_text().splitlines()[:step] if file.exists() else []
    file.write_text("".join(f"{line}\n" for line in kept))
    return file.open("a")
