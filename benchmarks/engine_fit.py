"""A model of an engine that is fitted to measured runs of independent completions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from orgthink.training.cluster.simulation.cluster import simulate
from orgthink.training.cluster.simulation.engine import EngineModel, Roof
from orgthink.training.cluster.simulation.program import AgentProgram

SLOTS = 128
"""Requests that an engine decodes at once."""
LOCAL = EngineModel(Roof(), slots=SLOTS, chunk=512)
"""What is known of the local engine without measuring."""
VLLM = EngineModel(Roof(), slots=SLOTS, block=32)
"""The same of vLLM on a CPU, as `VllmEngine` opens it."""
BENDS = (2, 4, 8, 16, 32)
"""Rows from which a further row takes longer; the best fit decides."""
FITS = 4
"""Number of least-squares fits, each at the values of the one before."""


class Run(NamedTuple):
    """A measured run."""

    waves: list[list[AgentProgram]]
    """Programs that ran at once, in waves one after the other."""
    seconds: float
    """Wall clock."""


def predicted(model: EngineModel, run: Run) -> float:
    """Seconds of a run by the model."""
    return sum(simulate(wave, model).seconds for wave in run.waves)


def fitted(runs: Sequence[Run], known: EngineModel) -> EngineModel:
    """The model with the smallest relative squares on independent completions. Its parameters are not negative."""
    models = [_fitted(runs, known, bend) for bend in BENDS]
    return min(models, key=lambda model: sum((predicted(model, run) / run.seconds - 1) ** 2 for run in runs))


def _fitted(runs: Sequence[Run], known: EngineModel, bend: int) -> EngineModel:
    """Linear least squares, repeated where it led: as the seconds are proportional to all parameters together, they are
    the sum of each parameter times their derivative by it, and a schedule changes little with the parameters."""
    seconds = np.array([run.seconds for run in runs])
    values = np.array([1e-4, 1e-5, 1e-7, 1e-5, 1e-4, 1e-4, 1e-4, 1e-4])
    for _ in range(FITS):
        before = _all_seconds(runs, values, known, bend)
        steps = np.maximum(values / 10, [1e-6, 1e-6, 1e-9, 1e-6, 1e-5, 1e-5, 1e-5, 1e-5])
        derivatives = [
            (_all_seconds(runs, values + steps * (np.arange(len(steps)) == i), known, bend) - before) / step
            for i, step in enumerate(steps)
        ]
        values = _least_squares(np.array(derivatives).T / seconds[:, None])
    return two_line_model(values, known, bend)


def _all_seconds(runs: Sequence[Run], values: np.ndarray, known: EngineModel, bend: int) -> np.ndarray:
    model = two_line_model(values, known, bend)
    return np.array([predicted(model, run) for run in runs])


def _least_squares(shares: np.ndarray) -> np.ndarray:
    """Values ≥ 0 for which shares @ values is close to 1. Negative ones are left out in turn."""
    positive, values = list(range(shares.shape[1])), np.zeros(shares.shape[1])
    while True:
        found = np.linalg.lstsq(shares[:, positive], np.ones(len(shares)))[0]
        if (found >= 0).all():
            values[positive] = found
            return values
        del positive[int(found.argmin())]


def two_line_model(values: np.ndarray, known: EngineModel, bend: int) -> EngineModel:
    """A row takes `row` seconds, and beyond `bend` rows `extra` more: the larger of two lines. To attend to a token
    takes as long in decoding as in reading."""
    row, extra, context, read, fixed, prefill, request, turnaround = map(float, values)
    few = Roof(row=row, context=context, read=read, seen=context)
    many = replace(few, base=-bend * extra, row=row + extra)
    times = {"fixed": fixed, "prefill": prefill, "request": request, "turnaround": turnaround}
    return replace(known, memory=few, compute=many, **times)
