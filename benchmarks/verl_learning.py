"""Whether verl learns what the embedded trainer learns: `python -m benchmarks.verl_learning`.

The same short run of AsyncThink on both, same recipe, seed and problems; then the model that both started from and the
two that came out attempt the same problems, sampled as in training. The table goes into docs/scale.md. Run it with
verl's environment and the settings of `make test-verl`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import tyro

from benchmarks.scale_page import cluster, conditions, write
from orgthink.engines.local.engine import LocalEngine
from orgthink.evaluation import distinct, grade
from orgthink.measure.estimate import Estimate, average, difference
from orgthink.recipes.jobs import Policy, model_folder
from orgthink.recipes.registry import RECIPES, Training, adjusted, go_on, start
from orgthink.scale.verl.launch import run
from orgthink.scale.verl.placement import Placement
from orgthink.tasks import task_named
from orgthink.training.embedded import SLOTS
from orgthink.training.rollout import roll_out

RECIPE = "asyncthink-countdown-mini"
CHANGES = ("warmup=0", "decay=false")
"""So that a few steps are enough to see a rise."""

BACKENDS = ("embedded", "verl")

Rewards = list[tuple[str, float]]
"""Of attempts, with the problem of each."""


@dataclass(frozen=True)
class Budget:
    """How long is trained, and on what is measured."""

    steps: int = 5
    """Of training."""
    problems: int = 16
    """Of a step; the recipe attempts each 8 times."""
    minibatches: int = 2
    """Optimizer steps of a step."""
    measured: int = 96
    """Problems that are measured on: of the training split, drawn with another seed."""
    samples: int = 2
    """Attempts at each of those."""
    seed: int = 0
    """Of problems and sampling."""

    def job(self) -> Policy:
        """What both train."""
        ours = {"steps": self.steps, "rollout.problems": self.problems, "minibatches": self.minibatches}
        changes = [*CHANGES, *(f"{name}={value}" for name, value in ours.items()), f"seed={self.seed}"]
        job = adjusted(RECIPES[RECIPE], {}, [*changes, f"save_every={self.steps}"])
        assert isinstance(job, Policy)
        return job


@dataclass(frozen=True)
class Learned:
    """A run, and what came of it."""

    steps: list[float]
    """Mean reward of each step's rollouts."""
    rewards: Rewards
    """On the problems that are measured on."""

    @property
    def reward(self) -> Estimate:
        return average(self.rewards)


def both(budget: Budget, place: Path, placement: Placement) -> dict[str, Learned]:
    """The runs of both backends, at the same time: they share nothing."""
    with ThreadPoolExecutor() as pool:
        begun = {backend: pool.submit(trained, budget, backend, place, placement) for backend in BACKENDS}
        return {backend: training.result() for backend, training in begun.items()}


def trained(budget: Budget, backend: str, place: Path, placement: Placement) -> Learned:
    """A run from its beginning to its end."""
    folder = start(Training(RECIPE, budget.job()), place / backend)
    model = run(folder, placement) if backend == "verl" else go_on(folder, lambda line: None)
    lines = (folder.path / "metrics.jsonl").read_text().splitlines()
    return Learned([json.loads(line)["reward"] for line in lines], rewards(budget, model))


def rewards(budget: Budget, model: Path) -> Rewards:
    """Rewards of attempts at the problems that are measured on, sampled as in training."""
    settings = budget.job().settings
    plan = replace(settings.rollout, group=budget.samples)
    problems = distinct(plan.task, "train", budget.seed + 1, budget.measured)

    async def attempted() -> Rewards:
        engine = LocalEngine.open(model, slots=SLOTS, threaded=False)
        try:
            episodes = await roll_out(plan, problems, engine, budget.seed)
        finally:
            await engine.aclose()
        graded = [grade(episode, task_named(plan.task)) for episode in episodes]
        return [(episode.problem.id, settings.reward(episode).total) for episode in graded]

    return asyncio.run(attempted())


def rises(before: Rewards, learned: Learned) -> bool:
    """Whether the interval of the rise lies above 0."""
    low = difference(learned.rewards, before).low
    return low is not None and low > 0


def overlap(first: Estimate, second: Estimate) -> bool:
    """Whether two intervals have a point in common."""
    assert first.low is not None and first.high is not None and second.low is not None and second.high is not None
    return first.low <= second.high and second.low <= first.high


def table(before: Rewards, runs: Mapping[str, Learned]) -> str:
    """Rewards on the problems that are measured on, and those of the steps."""
    lines = [
        "| policy | reward | above the start, problem by problem | rewards of the steps |",
        "| --- | --: | --: | --- |",
        f"| the start, `pocket` | {_formatted(average(before))} | – | – |",
    ]
    for backend, learned in runs.items():
        rise = difference(learned.rewards, before)
        steps = ", ".join(f"{reward:.2f}" for reward in learned.steps)
        lines.append(f"| after {backend} | {_formatted(learned.reward)} | {_formatted(rise)} | {steps} |")
    gap = difference(runs["verl"].rewards, runs["embedded"].rewards)
    lines.append(f"| verl − embedded, problem by problem | {_formatted(gap)} | – | – |")
    return "\n".join(lines)


def _formatted(estimate: Estimate) -> str:
    assert estimate.mean is not None and estimate.low is not None and estimate.high is not None
    return f"{estimate.mean:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


def caption(budget: Budget) -> str:
    """What was trained, and how it was measured."""
    plan = budget.job().settings.rollout
    return (
        f"`{RECIPE}` with {', '.join(CHANGES)}: {budget.steps} steps of {budget.problems} problems × {plan.group}, "
        f"{budget.minibatches} optimizer steps each, at most {plan.max_tokens} tokens an agent, seed {budget.seed}. "
        f"Measured on {budget.measured} problems of the training split × {budget.samples}, drawn with another seed and "
        "sampled as in training; 95 % intervals over problems."
    )


def main(budget: Budget = Budget()) -> None:
    """Train, measure and write the table."""
    with tempfile.TemporaryDirectory() as folder, cluster() as placement:
        before = rewards(budget, model_folder(budget.job().model))
        runs = both(budget, Path(folder), placement)
    write("learning", f"{table(before, runs)}\n\n{caption(budget)} {conditions('benchmarks.verl_learning')}")
    if not all(rises(before, learned) for learned in runs.values()):
        sys.exit("the reward does not rise on both")
    if not overlap(runs["embedded"].reward, runs["verl"].reward):
        sys.exit("the rewards after both do not overlap")


if __name__ == "__main__":
    tyro.cli(main)
