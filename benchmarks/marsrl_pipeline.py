"""Rollouts of MarsRL on a real model: the pipeline against whole trajectories, in sampled tokens a second.

    python -m benchmarks.marsrl_pipeline --model runs/marsrl-smollm2/adapters/cold-start

The pipeline starts new problems at each step, so all stages decode in one batch, and an output continues in the next
step after `segment` tokens. Whole trajectories go through all stages before the next problems start. Both sample with
the same settings, without training; steps in which the pipeline fills up are not counted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

import tyro

from orgthink.engines import engine_spec
from orgthink.engines.local.engine import LocalEngine
from orgthink.record.episode import Episode
from orgthink.training.marsrl.pipeline import Pipeline
from orgthink.training.marsrl.rollout import STREAMS, MarsRollout
from orgthink.training.recipes.any_model import VERIFIER_CORRECTOR
from orgthink.training.rl import Batch, Clock
from orgthink.util.threads import cores, set_threads


class Rollouts(Pipeline):
    """The pipeline without its rows: nothing is trained."""

    def _batch(self, complete: object, crashed: object, step: int) -> Batch:
        return Batch([], {}, None)


class WholeTrajectories(Rollouts):
    """Starts problems only after all others have ended."""

    def _new(self, sampler: LocalEngine) -> list[Episode]:
        return [] if self._chains else super()._new(sampler)


async def measured(make: Callable[[], Pipeline], engine: LocalEngine, warm: int, seconds: float) -> tuple[float, int]:
    """Sampled tokens a second, and the number of steps, of so many seconds after `warm` steps. A step of whole
    trajectories is one stage."""
    source, step, tokens, started = make(), 0, 0, 0.0
    while step <= warm or time.perf_counter() - started < seconds:
        if step == warm:
            tokens, started = 0, time.perf_counter()
        before = engine.counters.sampled_tokens
        await source.collect(engine, step, Clock(), lambda episode: None)
        tokens += engine.counters.sampled_tokens - before
        step += 1
    return tokens / (time.perf_counter() - started), step - warm


def main(
    model: str,
    task: str = "sudoku-six",
    problems: int = 2,
    segments: tuple[int, ...] = (224, 112, 56),
    max_tokens: int = 224,
    seconds: float = 120,
) -> None:
    """Print tokens a second of whole trajectories, and of pipelines with these segments."""
    set_threads(spare=0)
    folder = engine_spec(model).folder
    assert folder is not None, "a model of this machine"
    plan = MarsRollout(task, "brief", max_tokens=max_tokens, max_input=512, problems=problems, strategy="balanced")
    print(f"{cores()} cores, {problems} problems × {plan.group}, {max_tokens} tokens, {seconds:.0f} s each", flush=True)
    rates = {}
    for segment in (None, *segments):
        settings = replace(VERIFIER_CORRECTOR.settings, rollout=replace(plan, segment=segment))
        kind, warm = (WholeTrajectories, 0) if segment is None else (Rollouts, 2 * len(STREAMS))
        engine = LocalEngine.open(folder, threaded=False)
        rates[segment], steps = asyncio.run(measured(lambda kind=kind, how=settings: kind(how), engine, warm, seconds))
        name = "whole trajectories" if segment is None else f"pipeline, segments of {segment}"
        ratio = rates[segment] / rates[None]
        print(f"{name}: {rates[segment]:.0f} tokens/s in {steps} steps, {ratio:.2f} of whole", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
