"""`make bench`: all ratios that this environment can measure, with their goals and conditions.

`python -m benchmarks --only pipeline` measures only MarsRL's pipeline, on your own model. `--only parallel-calls`
measures only the rounds of ParaManager.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Literal

import tyro

from benchmarks.report import Line
from orgthink.provenance import commit
from orgthink.threads import set_threads


def lines() -> Iterator[Line]:
    """Yield the ratios as they are measured: those of vLLM if it is installed, the others if not."""
    if importlib.util.find_spec("vllm") is not None:
        from benchmarks import vllm_engine

        yield from vllm_engine.run()
        return
    from benchmarks import local_engine, parallel_calls, pipeline, runtime_overhead, training

    yield from runtime_overhead.run()
    yield from parallel_calls.run()
    yield from local_engine.run()
    yield from training.run()
    yield from pipeline.run()


def main(
    only: Literal["all", "pipeline", "parallel-calls"] = "all",
    model: Path | None = None,
    seeds: int = 3,
    share: float = 1.0,
) -> None:
    """Measure and print. `model`, `seeds` and `share` (of the trained tokens) apply to `--only pipeline`."""
    set_threads(spare=1)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(f"{platform.machine()}, {cores} cores, Python {platform.python_version()}, commit {commit()}\n", flush=True)
    measured = {"all": lines, "pipeline": partial(pipeline_alone, model, seeds, share), "parallel-calls": rounds_alone}
    for line in measured[only]():
        verdict = "met" if line.met else "missed"
        print(f"{line.name}: {line.value:.2f}  (goal {line.goal}: {verdict})\n    {line.conditions}", flush=True)


def pipeline_alone(model: Path | None, seeds: int, share: float) -> Iterator[Line]:
    from benchmarks import pipeline

    yield from pipeline.run(model, seeds, share)


def rounds_alone() -> Iterator[Line]:
    from benchmarks import parallel_calls

    yield from parallel_calls.run()


if __name__ == "__main__":
    tyro.cli(main)
    sys.stdout.flush()
    os._exit(0)  # vLLM's threads do not end by themselves
