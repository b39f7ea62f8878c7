"""What the simulation says of schedules that were measured, on a machine that is fitted to the same runs."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from benchmarks.pipeline_simulation import Lengths, Machine, Schedule, simulate

CHAINS = 512
"""Number of simulated chains."""


class Work(NamedTuple):
    """What a step of a training did, and how long it took."""

    steps: int
    """Number of decoding steps."""
    tokens: int
    """Number of sampled tokens."""
    read: int
    """Number of tokens that were read: inputs, and contexts after an update."""
    trained: int
    """Number of tokens of the groups that were complete."""
    decoding: float
    """Seconds of decoding."""
    training: float
    """Seconds of training."""
    updating: float
    """Seconds of the update of the sampler's weights."""


class Measured(NamedTuple):
    """Measurements of a schedule, means over seeds."""

    schedule: Schedule
    """The schedule, as the simulation has it."""
    delay: float
    """Seconds from an output's end to its training."""
    speed: float
    """Tokens of complete groups per second."""


def fitted(whole: Sequence[Work], all_steps: Sequence[Work], slots: int) -> Machine:
    """The machine whose decoding took the time of all steps, by least squares.

    The simulation has no inputs: their cost is added to that of rows, as many a token as whole trajectories read.
    """
    work = torch.tensor([one[:3] for one in all_steps], dtype=torch.float64)
    seconds = torch.tensor([one.decoding for one in all_steps], dtype=torch.float64)
    costs = torch.full((3,), -1.0, dtype=torch.float64)
    used = torch.ones(3, dtype=torch.bool)
    while (costs < 0).any():  # a cost below 0 is noise: the fit is made again without it
        costs.zero_()
        costs[used] = torch.linalg.lstsq(work[:, used], seconds).solution
        used &= costs >= 0
    step, row, read = costs.tolist()
    inputs = sum(one.read for one in whole) / sum(one.tokens for one in whole)
    train = sum(one.training for one in all_steps) / sum(one.trained for one in all_steps)
    update = sum(one.updating for one in all_steps) / len(all_steps)
    return Machine(slots, step, row + read * inputs, train, update=update, read=read)


def table(title: str, machine: Machine, measured: Mapping[str, Measured], lengths: Sequence[Lengths]) -> str:
    """Measured and simulated delays, and tokens a second relative to the first schedule."""
    chains = random.Random(0).choices(lengths, k=CHAINS)
    simulated = {name: simulate(chains, one.schedule, machine) for name, one in measured.items()}
    first = next(iter(measured))
    costs = f"a decoding step {machine.step * 1e3:.2f} ms and {machine.row * 1e3:.3f} ms a row, a token read again "
    costs += (
        f"{machine.read * 1e3:.3f} ms and trained {machine.train * 1e3:.3f} ms, an update {machine.update * 1e3:.1f} ms"
    )
    rows = [
        f"\n{title}: {costs}",
        f"{'':<10}{'delay, s: measured':>19}{'simulated':>11}{'tokens/s ÷: measured':>23}{'simulated':>11}{'share':>7}",
    ]
    for name, one in measured.items():
        predicted = simulated[name]
        faster = one.speed / measured[first].speed, predicted.throughput / simulated[first].throughput
        rows.append(
            f"{name:<10}{one.delay:>19.2f}{predicted.delay:>11.2f}{faster[0]:>23.2f}{faster[1]:>11.2f}{predicted.share:>7.2f}"
        )
    return "\n".join(rows)
