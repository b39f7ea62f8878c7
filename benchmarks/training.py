"""Training on real rollouts of the pocket model: packed compared with padded rows, and the parts of a step."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import torch
from orgthink_pocket.shipped import MODELS
from torch.nn.utils.rnn import pad_sequence
from torch.profiler import ProfilerActivity, profile

from benchmarks.report import Line
from orgthink.models.decoder import Decoder
from orgthink.record.folder import RunFolder
from orgthink.training.backend import EmbeddedBackend
from orgthink.training.policy_loss import PolicyLoss, token_losses, weighted
from orgthink.training.recipes.jobs import Policy
from orgthink.training.recipes.registry import RECIPES, Training, start
from orgthink.training.rl import train_policy
from orgthink.training.rollout import ProblemStream, roll_out
from orgthink.training.rows import PolicyRow, policy_rows

FOLDER = MODELS / "pocket-base"
TRL = Path(".venv-trl/bin/python")
STEPS = 4
"""Number of measured steps of each trainer, after one warm-up step."""


def run() -> Iterator[Line]:
    """Yield the ratios as they are measured."""
    yield from packing("pocket", "the first step's")
    yield from packing("pocket-organizer", "the last step's")
    yield from mixed_precision()
    yield from shares()
    if TRL.exists():
        yield against_trl()
    else:
        print("make trl bench adds the ratio to TRL's trainer", flush=True)


def recipe(name: str) -> Policy:
    job = RECIPES[name]
    assert isinstance(job, Policy)
    return job


def packing(sampled_by: str, when: str) -> Iterator[Line]:
    """Trained tokens per second with packs, divided by those with one padded row per trace.

    The rows are the groups of a real step. Padded rows are measured in sampled order, and sorted by length, which needs
    little padding. A policy with low entropy gains more from packs, because its samples share longer prefixes.
    """
    job, loss = recipe("asyncthink-pocket"), PolicyLoss()
    backend, group, model = (
        job.backend(MODELS / sampled_by),
        job.settings.rollout.group,
        Decoder.load(MODELS / sampled_by),
    )
    rows, episodes = sampled_rows(job, backend)
    computed = backend.forward_backward(rows, loss).computed

    def packed() -> None:
        backend.forward_backward(rows, loss)

    def padded(ordered: Sequence[PolicyRow]) -> None:
        for first in range(0, len(ordered), group):
            one_row_a_trace(model, ordered[first : first + group], loss)

    ours, tokens = best(packed), sum(map(len, rows))
    conditions = f"{len(rows)} traces of {episodes} episodes, {tokens:,} tokens, {computed:,} computed in packs of "
    conditions += (
        f"{job.pack_tokens:,}, {tokens / ours:,.0f} tokens/s, at most {peak(packed):.0f} MB; micro-batches of "
    )
    conditions += f"{group} rows, at most {peak(lambda: padded(rows)):.0f} MB"
    ratio = best(lambda: padded(rows)) / ours
    how = f"{conditions} as they were sampled, each padded to its longest"
    yield Line(f"packed rows ÷ one padded row a trace, {when} groups", ratio, "≥ 2", ratio >= 2, how)
    by_length = sorted(rows, key=len)
    ratio = best(lambda: padded(by_length)) / ours
    yield Line(f"packed rows ÷ padded rows sorted by length, {when} groups", ratio, "≥ 1", ratio >= 1, conditions)


def sampled_rows(job: Policy, backend: EmbeddedBackend) -> tuple[list[PolicyRow], int]:
    """The rows of eight groups that the backend's sampler draws, with advantages of 1 and -1, and their episodes."""
    plan = replace(job.settings.rollout, problems=8)
    episodes = asyncio.run(roll_out(plan, ProblemStream(plan, 0).batch(), backend.sampler, 0))
    rows = [row for i, episode in enumerate(episodes) for row in policy_rows(episode, (-1.0) ** i)]
    return weighted(rows, "token-mean"), len(episodes)


def mixed_precision() -> Iterator[Line]:
    """Speed and peak memory of a pass in bfloat16 with weights in float32, divided by those in float32."""
    job, loss = recipe("asyncthink-pocket"), PolicyLoss()
    single, mixed = (replace(job, mixed_precision=on).backend(FOLDER) for on in (False, True))
    rows, _ = sampled_rows(job, single)

    def works(backend: EmbeddedBackend) -> Callable[[], None]:
        return lambda: (backend.forward_backward(rows, loss), None)[1]

    seconds, memory = [best(works(one)) for one in (single, mixed)], [peak(works(one)) for one in (single, mixed)]
    off = max(
        abs(p - q)
        for one, other in zip(single.logprobs(rows), mixed.logprobs(rows), strict=True)
        for p, q in zip(one, other, strict=True)
    )
    how = (
        f"{len(rows)} traces, packs of {job.pack_tokens:,} tokens, at most {memory[1]:.0f} MB and {memory[0]:.0f} MB; "
    )
    how += f"log-probabilities differ by at most {off:.2g}"
    ratio = seconds[0] / seconds[1]
    yield Line("training in bfloat16 with float32 weights ÷ in float32, speed", ratio, "≥ 1", ratio >= 1, how)
    yield Line("the same, peak memory", memory[1] / memory[0], "≤ 1", memory[1] <= memory[0], how)


def peak(work: Callable[[], None]) -> float:
    """Most megabytes of tensors at once that some work allocates, its second run: gradients exist by then."""
    work()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        work()
    assert profiled.profiler is not None and profiled.profiler.kineto_results is not None
    events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    changes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    return max(accumulate(changes)) / 1e6


def one_row_a_trace(model: Decoder, rows: Sequence[PolicyRow], loss: PolicyLoss) -> None:
    """Forward and backward pass of a padded micro-batch, as in a trainer without packing."""
    ids = pad_sequence([torch.tensor(row.token_ids) for row in rows], batch_first=True)
    trained = pad_sequence([torch.tensor(row.trained) for row in rows], batch_first=True)
    mask = trained[:, 1:]
    logits = model.logits(model.hidden(ids[:, :-1])[mask])
    logprobs = torch.log_softmax(logits, -1).gather(1, ids[:, 1:][mask][:, None])[:, 0]
    sampled = torch.tensor([p for row in rows for p, t in zip(row.logprobs, row.trained, strict=True) if t])
    advantages = torch.cat([torch.full((sum(row.trained),), row.advantage) for row in rows])
    token_losses(logprobs, sampled, advantages, loss).losses_N.mean().backward()


def best(work: Callable[[], None], times: int = 3) -> float:
    """Seconds of the fastest of several runs, after one warm-up run."""
    work()
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def train(job: Policy) -> list[dict]:
    """Metrics of the steps after the first."""
    lines: list[dict] = []
    with tempfile.TemporaryDirectory() as folder:
        run: RunFolder = start(Training("bench", job), Path(folder) / "run")
        train_policy(job.backend(FOLDER), job.source(), job.settings, run, lines.append)
    return lines[1:]


def shares() -> Iterator[Line]:
    """The share of a step's seconds that the rollout takes."""
    job = recipe("asyncthink-pocket")
    lines = train(replace(job, settings=replace(job.settings, steps=STEPS)))
    seconds = {name: sum(line["seconds"][name] for line in lines) for name in lines[0]["seconds"]}
    split = ", ".join(f"{name} {part:.1f} s" for name, part in seconds.items())
    share = seconds["rollout"] / sum(seconds.values())
    yield Line("rollout share of a training step", share, "none", True, f"{len(lines)} steps: {split}")


def against_trl() -> Line:
    """Trained tokens per second on single-trace rows, generation included: ours divided by TRL's GRPOTrainer.

    Our count includes only groups with different rewards. TRL also trains the other groups, with advantages of 0.
    """
    job = recipe("asyncthink-pocket-sequential")
    rollout = replace(job.settings.rollout, problems=8)
    settings = replace(job.settings, rollout=rollout, minibatches=1, steps=STEPS + 1)
    lines = train(replace(job, settings=settings))
    ours = sum(line["trained_tokens"] for line in lines) / sum(sum(line["seconds"].values()) for line in lines)
    command = [str(TRL), "-m", "benchmarks.trl_grpo"]
    output = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=True).stdout
    theirs = json.loads(output.splitlines()[-1])["tokens_per_second"]
    return Line(
        "our trainer ÷ TRL's GRPOTrainer, single-trace rows, generation included",
        ours / theirs,
        "≥ 2",
        ours / theirs >= 2,
        f"pocket, {rollout.problems} problems × {rollout.group}, at most {rollout.max_tokens} tokens, {len(lines)} "
        f"steps: {ours:,.0f} and {theirs:,.0f} trained tokens/s",
    )
