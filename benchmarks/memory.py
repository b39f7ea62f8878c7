"""Most memory of a training step of rows of 1,024 tokens, checkpoint included: `python -m benchmarks.memory`."""

from __future__ import annotations

import random
import re
import resource
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from math import inf
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import tyro

from benchmarks.report import Line
from orgthink.models.hub import fetched
from orgthink.models.lora import LoraSettings
from orgthink.models.model_files import ModelFiles
from orgthink.models.trainable import open_trainable
from orgthink.record.folder import RunFolder
from orgthink.training.rows import Row
from orgthink.training.sft import Course, SftSettings, train
from orgthink.util.threads import MOST, cores

ROWS, TOKENS, PROMPT = 4, 1024, 256
"""Rows of the step, as many as the default batch of 5,000 tokens holds; tokens of a row; those not trained."""
RANK = 16

QWEN2_5: dict[str, Any] = {
    "num_hidden_layers": 24,
    "hidden_size": 896,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "intermediate_size": 4864,
    "vocab_size": 151_936,
    "tie_word_embeddings": True,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
"""The shape of Qwen2.5-0.5B."""


def run(qwen: Path | None = None) -> Iterator[Line]:
    """`qwen`: folder of the second model; without it, random weights of the shape of Qwen2.5-0.5B."""
    with tempfile.TemporaryDirectory() as place:
        if (smollm2 := fetched("smollm2")) is not None:
            yield from _lines("SmolLM2-135M", smollm2, None, 6.0)
            yield from _lines("SmolLM2-135M", smollm2, RANK, 4.0)
        if qwen is None:
            _alone(random_qwen, qwen := Path(place))
        yield from _lines("Qwen2.5-0.5B", qwen, RANK, 10.0)


def _lines(name: str, folder: Path, rank: int | None, most: float) -> Iterator[Line]:
    for again in (False, True):
        try:
            found = _alone(peak, folder, rank, again)
        except BrokenProcessPool:  # the system ended it
            found = inf
        how = (
            f"{'all weights' if rank is None else f'LoRA {rank}'}, with{'' if again else 'out'} gradient checkpointing"
        )
        conditions = f"{ROWS} rows of {TOKENS:,} tokens, float32, at most {min(cores(), MOST)} threads, one process"
        yield Line(f"memory of a training step in GB, {name}, {how}", found, f"≤ {most}", found <= most, conditions)


def _alone(work: Any, *given: Any) -> Any:
    """What a function returns in a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(work, *given).result()


def peak(folder: Path, rank: int | None, gradient_checkpointing: bool) -> float:
    """Most gigabytes of this process, the whole program included, after a training of one step."""
    torch.set_num_threads(min(cores(), MOST))
    lora = None if rank is None else LoraSettings(rank)
    model = open_trainable(folder, lora, gradient_checkpointing=gradient_checkpointing)
    settings = SftSettings(steps=1)
    assert settings.batch_tokens >= ROWS * TOKENS
    with tempfile.TemporaryDirectory() as place:
        run = RunFolder.create(Path(place) / "run", "train", asdict(settings))
        train(Course(model, _rows, ModelFiles(folder).write), settings, run, print)
    return _most() / 1e9


def _rows(seed: int, epoch: int) -> Iterator[Row]:
    draw = random.Random(f"{seed} {epoch}")
    for _ in range(ROWS):
        ids = tuple(draw.randrange(100, 40_000) for _ in range(TOKENS))
        yield Row(ids, tuple(i >= PROMPT for i in range(TOKENS)))


def _most() -> int:
    """Bytes. A process inherits `ru_maxrss` of the one that started it, so Linux's other count is better."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # of macOS, in bytes
    found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
    assert found is not None
    return int(found[1]) * 1024


def random_qwen(folder: Path) -> None:
    """Write a model of random weights, in bfloat16 as the real one."""
    from transformers import AutoModelForCausalLM, Qwen2Config

    AutoModelForCausalLM.from_config(Qwen2Config(**QWEN2_5), dtype=torch.bfloat16).save_pretrained(folder)


def main(qwen: Path | None = None) -> None:
    """Print the memory of each training. `qwen`: folder of Qwen2.5-0.5B; without it, random weights of its shape."""
    for line in run(qwen):
        print(f"{line.name}: {line.value:.2f}  (goal {line.goal}: {'met' if line.met else 'missed'})", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
