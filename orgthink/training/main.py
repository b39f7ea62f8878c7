"""`orgthink train`: recipes by name, progress, resumption."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import torch

from orgthink.engines.qwen3 import Qwen3
from orgthink.engines.tokenizer import Tokenizer
from orgthink.training import pocket
from orgthink.training.rows import Row, row_of
from orgthink.training.sft import Lesson, SftSettings, train

RECIPES: dict[str, SftSettings] = {"pocket": SftSettings(steps=8_000, learning_rate=3e-3)}
"""From-scratch training of the shipped model."""


def start(recipe: str, run: Path, settings: SftSettings, device: str = "auto") -> Path:
    """Train a recipe in a new run folder; returns the last checkpoint. ValueError if the folder holds a run."""
    if (run / "config.json").exists():
        raise ValueError(f"{run} already holds a run: use --resume {run}, or another --out")
    run.mkdir(parents=True, exist_ok=True)
    config = {"kind": "train", "recipe": recipe, "settings": asdict(settings), "device": device}
    (run / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    return resume(run)


def resume(run: Path) -> Path:
    """Go on with a run, from its newest checkpoint. ValueError if the folder holds no training run."""
    file = run / "config.json"
    config = json.loads(file.read_text()) if file.is_file() else {}
    if config.get("kind") != "train" or config.get("recipe") not in RECIPES:
        raise ValueError(f"{run} holds no training run of this version")
    settings = SftSettings(**config["settings"])
    pocket.write_folder(run / "tokenizer")
    lesson = pocket_lesson(settings.seed, run / "tokenizer", config["device"])
    return train(lesson, settings, run, _progress(settings.steps))


def pocket_lesson(seed: int, folder: Path, device: str = "auto") -> Lesson:
    """The pocket model with fresh weights, and its stream of rows."""
    tokenizer = Tokenizer(folder)
    (eos,) = tokenizer.eos_ids

    def rows(seed: int, pool: int) -> Iterator[Row]:
        for traces in pocket.lessons(seed, pool):
            for trace in traces:
                yield row_of(trace, tokenizer.encode, eos)

    model = Qwen3(pocket.CONFIG)
    model.initialise(torch.Generator().manual_seed(seed))
    chosen = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    return Lesson(model.to(chosen), rows, pocket.write_folder, pocket.vocabulary().index(pocket.PAD))


def _progress(steps: int) -> Callable[[dict[str, float]], None]:
    """A progress bar on a terminal, a line every hundred steps elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console, began = Console(), time.perf_counter()
    bar = Progress(
        TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("loss {task.fields[loss]:.4f}"),
        TimeRemainingColumn(), console=console, disable=not console.is_terminal,
    )
    task = bar.add_task("training", total=steps, loss=float("nan"))
    bar.start()

    def report(line: dict[str, float]) -> None:
        step = int(line["step"])
        bar.update(task, completed=step, loss=line["loss"])
        if not console.is_terminal and step % 100 == 0:
            rate = line["trained_tokens"] / line["seconds"]
            print(f"step {step}/{steps}  loss {line['loss']:.4f}  {rate:,.0f} tokens/s  {time.perf_counter() - began:.0f} s", flush=True)
        if step == steps:
            bar.stop()

    return report
