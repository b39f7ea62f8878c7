"""Cost of our code in a step on verl, from a profile of real steps: `python -m benchmarks.verl_step`.

Each algorithm trains the pocket model for a few steps with verl's own trainer on a CPU. Run it with verl's environment
and the settings of `make test-verl`, while no other run uses Ray.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import tyro

from benchmarks.verl_cluster import cluster, conditions
from orgthink.training.cluster.verl.launch import Placement, run
from orgthink.training.recipes.registry import RECIPES, Training, adjusted, start

JOBS = {
    "AsyncThink": ("asyncthink-pocket", ["rollout.problems=8"]),
    "MarsRL": ("marsrl-pocket", ["rollout.problems=8"]),
    "ParaManager": ("paramanager-pocket", ["model=pocket-manager", "rollout.problems=8"]),
}
"""Recipes, with smaller steps."""

ROOT = Path(__file__).parent.parent
MODULES = "orgthink_pocket.verl_cpu,orgthink.training.cluster.verl.backend,benchmarks.verl_profile"
TRAINER, PROFILE = "orgthink_profiled", "profile.jsonl"
"""Names of benchmarks/verl_profile.py, which only verl's processes can import."""

OF_TOKENS = ("organizations and runtime", "tokens to servers and back", "event loop")
"""Parts whose cost grows with the sampled tokens."""
OF_ROWS = ("rewards, credit, rows", "rows to workers")
"""Parts whose cost grows with the rows."""
OURS = (*OF_TOKENS, *OF_ROWS, "checkpoint, metrics")
FOREIGN = ("verl, Ray and TransferQueue", "frozen models")
"""Parts outside our adapter: verl's and the engine's."""


@dataclass(frozen=True)
class Step:
    """Mean cost of the steps of an algorithm."""

    name: str
    """Name of the algorithm."""
    wall: float
    """Wall-clock seconds of a step, which include other load on the machine."""
    computed: float
    """CPU seconds of trainer, workers and servers together."""
    parts: Mapping[str, float]
    """CPU seconds of the trainer's process by part."""
    done: Mapping[str, float]
    """Number of rows, tokens of rows, requested outputs (`requests`) and their sampled tokens."""

    @property
    def ours(self) -> float:
        """Seconds in our code and in libraries that it calls, verl excluded."""
        return self.of(OURS)

    @property
    def share(self) -> float:
        """Share of our code in the CPU seconds of a step, or in its wall-clock seconds if these are fewer."""
        return self.ours / min(self.wall, self.computed)

    def of(self, parts: Iterable[str]) -> float:
        """CPU seconds in these parts."""
        return sum(self.parts.get(part, 0.0) for part in parts)


def profiled(placement: Placement) -> Placement:
    """Placement on the trainer with the profiler."""
    environment = "ray_kwargs.ray_init.runtime_env.env_vars"
    settings = (
        f"trainer.v1.trainer_mode={TRAINER}",
        f"{environment}.VERL_USE_EXTERNAL_MODULES='{MODULES}'",
        f"+{environment}.PYTHONPATH={ROOT}",
    )
    return replace(placement, settings=(*placement.settings, *settings))


def measured(name: str, steps: int, placement: Placement, place: Path) -> Step:
    """Profile the steps of an algorithm after the first, each with its checkpoint."""
    recipe, changes = JOBS[name]
    job = adjusted(RECIPES[recipe], {}, [*changes, f"steps={steps + 1}", "warmup=0", "save_every=1"])
    folder = start(Training(recipe, job), place / name)
    run(folder, profiled(placement))
    lines = [json.loads(line) for line in (folder.path / PROFILE).read_text().splitlines()]
    assert len(lines) == steps
    parts, done = (_mean([line[kind] for line in lines]) for kind in ("parts", "done"))
    wall, computed = (sum(line[kind] for line in lines) / steps for kind in ("wall", "computed"))
    return Step(name, wall, computed, parts, done)


def _mean(several: Sequence[Mapping[str, float]]) -> dict[str, float]:
    total: Counter[str] = Counter()
    for one in several:
        total.update(one)
    return {name: value / len(several) for name, value in total.items()}


def table(steps: Sequence[Step]) -> str:
    """The table, with a column for each algorithm."""
    rows: dict[str, Callable[[Step], str]] = {
        "seconds of a step, other load included": lambda step: f"{step.wall:.1f}",
        "computed in them by trainer, workers and servers, s": lambda step: f"{step.computed:.2f}",
        **{f"· {part}, s": partial(_seconds, part) for part in OURS},
        "= our code in the trainer's process, s": lambda step: f"{step.ours:.2f}",
        "our code ÷ step": lambda step: f"{step.share:.1%}",
        **{f"outside our code: {part}, s": partial(_seconds, part) for part in FOREIGN},
        "rows of a step": lambda step: f"{step.done['rows']:,.0f}",
        "tokens of a row": lambda step: f"{step.done['row_tokens'] / step.done['rows']:,.0f}",
        "outputs that servers sampled": lambda step: f"{step.done['requests']:,.0f}",
        "tokens of an output": lambda step: f"{step.done['tokens'] / step.done['requests']:,.0f}",
        "our code, ms a row": lambda step: f"{1e3 * step.of(OF_ROWS) / step.done['rows']:.2f}",
        "our code, ms an output": lambda step: f"{1e3 * step.of(OF_TOKENS) / step.done['requests']:.2f}",
        "our code, µs a sampled token": lambda step: f"{1e6 * step.of(OF_TOKENS) / step.done['tokens']:.0f}",
    }
    lines = [["", *(step.name for step in steps)], ["---", *("--:" for _ in steps)]]
    lines += [[name, *map(cell, steps)] for name, cell in rows.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _seconds(part: str, step: Step) -> str:
    return f"{step.parts.get(part, 0.0):.2f}"


def main(steps: int = 3) -> None:
    """Profile `steps` steps of each algorithm, and write the table."""
    with tempfile.TemporaryDirectory() as folder, cluster() as placement:
        found = [measured(name, steps, placement, Path(folder)) for name in JOBS]
    jobs = "; ".join(f"{name}: `{' '.join([recipe, *changes])}`" for name, (recipe, changes) in JOBS.items())
    caption = f"Means of {steps} steps after the first, each with a checkpoint. {jobs}, seed 0, on a CPU."
    print(f"{table(found)}\n\n{caption} {conditions('benchmarks.verl_step')}", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
