"""What to measure first on a GPU: `make bench-gpu`, or `python -m benchmarks.gpu --models qwen3-0.6b`.

Models of random weights have the true shapes of Qwen3: a token costs what it costs, and none means anything. vLLM
samples, or the local engine where vLLM is not installed. Where verl is, a step on verl is measured instead, on the
pocket model.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
import tyro

from benchmarks.fork_join import plain, plans
from benchmarks.models import random_model
from benchmarks.report import Line
from orgthink.engines.engine import Engine
from orgthink.engines.local.engine import LocalEngine
from orgthink.models.config import DecoderConfig
from orgthink.record.provenance import commit
from orgthink.training.cluster.sizing.model import Model, config_of
from orgthink.training.cluster.sizing.plan import ACCELERATORS, Cluster, Plan, Work
from orgthink.training.cluster.sizing.recipe import setups

CONTEXT = 4096
"""Most tokens of a sequence."""
BATCHES = (1, 8, 64)
"""Numbers of requests that decode at once."""
GROUPS, GROUP, PROMPT, ROW = 4, 4, 128, 512
"""Rows of the training step: groups of a prompt and as many rows, and tokens of a prompt and of a row."""
PACK = 2048
"""Tokens of a forward pass."""
VLLM = importlib.util.find_spec("vllm") is not None


def sampling(folder: Path, name: str, device: str) -> Iterator[Line]:
    """Decoding, and fork and join."""
    kind = "vLLM" if VLLM else "local"
    with asyncio.Runner() as runner:
        engine: Engine
        if VLLM:
            from benchmarks.vllm_engine import EPISODES, SLOTS, fork_joins
            from orgthink.engines.vllm import VllmEngine

            engine = runner.run(VllmEngine.open(folder, dtype="bfloat16", max_num_seqs=SLOTS))
            yield from runner.run(fork_joins(engine, EPISODES, name))[1]
        else:
            engine = LocalEngine.open(folder, dtype=torch.bfloat16, device=device)
        for batch in BATCHES:
            requests = [plan._replace(workers=()) for plan in plans(batch)]
            rate = max([runner.run(plain(engine, requests))[0].rate for _ in range(3)])
            conditions = f"{name}, {kind}, in process, 180 to 360 tokens a request; best of 3"
            yield Line(f"tokens a second, {batch} requests at once", rate, "none", True, conditions)
        runner.run(engine.aclose())


def training(folder: Path, name: str, device: str) -> Iterator[Line]:
    """A step of the embedded trainer: weights, gradients and Adam in float32, arithmetic in bfloat16."""
    from orgthink.engines.scripted import ScriptedEngine
    from orgthink.models.trainable import open_trainable
    from orgthink.training.backend import EmbeddedBackend
    from orgthink.training.policy_loss import PolicyLoss, weighted
    from orgthink.training.rows import PolicyRow

    words, seconds = random.Random(0), []
    rows = []
    for group in range(GROUPS):
        prompt = [words.randrange(256) for _ in range(PROMPT)]
        for i in range(GROUP):
            ids = (*prompt, *(words.randrange(256) for _ in range(ROW - PROMPT)))
            names = {"episode": f"{group}.{i}", "agent": "0", "role": "sequential", "group": str(group)}
            trained = (False,) * PROMPT + (True,) * (ROW - PROMPT)
            rows.append(PolicyRow(ids, trained, (0.0,) * ROW, (-1.0) ** i, 1.0, **names, age=(0,) * ROW))
    model = open_trainable(folder, device=device, mixed_precision=True)
    backend = EmbeddedBackend(model, ScriptedEngine([]), folder, pack_tokens=PACK)
    for _ in range(3):  # the first one warms up, and allocates Adam's states
        began = time.perf_counter()
        known = [replace(row, logprobs=now) for row, now in zip(rows, backend.logprobs(rows), strict=True)]
        done = backend.forward_backward(weighted(known, "token-mean"), PolicyLoss())
        backend.optim_step(1e-6, clip=1.0)  # reads the norm, and so waits for the GPU
        seconds.append(time.perf_counter() - began)
    conditions = f"{name}, {done.computed:,} tokens in packs of {PACK:,}, and their log-probabilities before"
    yield Line("seconds of a training step, embedded", min(seconds[1:]), "none", True, conditions)
    if device == "cuda":
        yield from _estimated(name, min(seconds[1:]), torch.cuda.max_memory_allocated(), conditions)


def _estimated(name: str, seconds: float, most: int, conditions: str) -> Iterator[Line]:
    """The same by `orgthink size`."""
    card = next((card for card in ACCELERATORS if card in torch.cuda.get_device_name().lower()), None)
    if card is None:
        return
    setup = replace(setups(None, {})["embedded"], pack=PACK, share=0.0, frozen=1)
    work = Work(GROUPS, GROUP, 1, 0, PROMPT, ROW - PROMPT)
    plan = Plan("embedded", Model.of(config_of(name)), setup, work, ACCELERATORS[card], Cluster(gpus=1))
    found, expected = most / 2**30, plan.memory.training / 2**30
    text = f"{found:.1f} ÷ {expected:.1f} GiB; {conditions}"
    yield Line(
        "memory of a training step ÷ its estimate", found / expected, "0.8 to 1.1", 0.8 <= found / expected <= 1.1, text
    )
    if plan.seconds is not None:
        yield Line(
            "seconds of a training step ÷ their estimate", seconds / plan.seconds.training, "none", True, conditions
        )


def on_verl(place: Path) -> Iterator[Line]:
    """A step of verl's own trainer, vLLM and FSDP in turns on one GPU, after a first step."""
    from orgthink.training.cluster.verl.launch import Placement, run
    from orgthink.training.recipes.registry import RECIPES, Training, adjusted, start

    recipe, changes = "asyncthink-pocket", ["rollout.problems=8", "steps=2", "drift=0.1", "loss.old=trainer"]
    folder = start(Training(recipe, adjusted(RECIPES[recipe], {}, changes)), place / "run")
    run(folder, Placement(device="cuda"))
    line = json.loads((folder.path / "metrics.jsonl").read_text().splitlines()[-1])
    parts = ", ".join(f"{name} {part:.1f} s" for name, part in line["seconds"].items())
    conditions = f"`{' '.join([recipe, *changes])}`, second step: {parts}"
    yield Line("seconds of a step, verl", sum(line["seconds"].values()), "none", True, conditions)


def lines(names: tuple[str, ...], device: str) -> Iterator[Line]:
    """Yield what is measured."""
    with tempfile.TemporaryDirectory() as place:
        if importlib.util.find_spec("verl") is not None:
            yield from on_verl(Path(place))
            return
        for name in names:
            known = config_of(name)
            shape = {field: known[field] for field in DecoderConfig.__slots__ if field in known}
            config = DecoderConfig(**shape | {"max_position_embeddings": CONTEXT})
            (folder := Path(place) / name).mkdir()
            random_model(folder, config, torch.bfloat16, device)
            try:
                yield from training(folder, name, device)
            except torch.OutOfMemoryError:
                print(f"{name}: a training step does not fit this GPU", flush=True)
            gc.collect()  # the trainer's tensors
            torch.cuda.empty_cache()
            yield from sampling(folder, name, device)


def main(models: tuple[str, ...] = ("qwen3-0.6b", "qwen3-4b"), device: str = "cuda") -> None:
    """Measure and print. `device=cpu` tries this file on a small model, such as `pocket`."""
    if device == "cuda" and not torch.cuda.is_available():
        print("no GPU: nothing to measure here")
        return
    card = torch.cuda.get_device_name() if device == "cuda" else "no GPU"
    print(f"{card}, torch {torch.__version__}, commit {commit()}\n", flush=True)
    for line in lines(models, device):
        verdict = "met" if line.met else "missed"
        print(f"{line.name}: {line.value:.2f}  (goal {line.goal}: {verdict})\n    {line.conditions}", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
    sys.stdout.flush()
    os._exit(0)  # vLLM's threads do not end by themselves
