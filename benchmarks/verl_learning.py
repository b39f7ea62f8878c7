"""Compares learning on verl with the embedded trainer: `python -m benchmarks.verl_learning`.

Both train AsyncThink for a few steps with the same recipe, seed and problems. Then the initial model and the two
trained models attempt the same problems, sampled as in training. Run it with verl's environment
and the settings of `make test-verl`.
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

from benchmarks.verl_cluster import cluster, conditions
from orgthink.engines.local.engine import LocalEngine
from orgthink.evaluation.grading import grade
from orgthink.evaluation.plan import distinct
from orgthink.measure.estimate import Estimate, average, difference
from orgthink.tasks import task_named
from orgthink.training.cluster.verl.launch import Placement, run
from orgthink.training.recipes.base_model import model_folder
from orgthink.training.recipes.jobs import Policy
from orgthink.training.recipes.registry import RECIPES, Training, adjusted, go_on, start
from orgthink.training.rollout import SLOTS, roll_out

RECIPE = "asyncthink-pocket"
CHANGES = ("warmup=0", "decay=false")
"""High learning rate, so that a few steps suffice to see a rise."""

BACKENDS = ("embedded", "verl")

Rewards = list[tuple[str, float]]
"""Rewards of attempts: (problem id, reward)."""


@dataclass(frozen=True)
class Budget:
    """Size of the training and of the measurement."""

    steps: int = 5
    """Number of training steps."""
    problems: int = 16
    """Number of problems per step. The recipe attempts each 8 times."""
    minibatches: int = 2
    """Number of optimizer steps per step."""
    measured: int = 96
    """Number of problems for the measurement, from the training split with another seed."""
    samples: int = 2
    """Number of attempts at each of these problems."""
    seed: int = 0
    """Seed of problems and sampling."""

    def job(self) -> Policy:
        """The training of both backends."""
        ours = {"steps": self.steps, "rollout.problems": self.problems, "minibatches": self.minibatches}
        changes = [*CHANGES, *(f"{name}={value}" for name, value in ours.items()), f"seed={self.seed}"]
        job = adjusted(RECIPES[RECIPE], {}, [*changes, f"save_every={self.steps}"])
        assert isinstance(job, Policy)
        return job


@dataclass(frozen=True)
class Learned:
    """Result of a run."""

    steps: list[float]
    """Mean reward of the rollouts of each step."""
    rewards: Rewards
    """Rewards on the problems of the measurement."""

    @property
    def reward(self) -> Estimate:
        return average(self.rewards)


def both(budget: Budget, place: Path, placement: Placement) -> dict[str, Learned]:
    """Run both backends at the same time. They share nothing."""
    with ThreadPoolExecutor() as pool:
        begun = {backend: pool.submit(trained, budget, backend, place, placement) for backend in BACKENDS}
        return {backend: training.result() for backend, training in begun.items()}


def trained(budget: Budget, backend: str, place: Path, placement: Placement) -> Learned:
    """Run one backend from start to end."""
    folder = start(Training(RECIPE, budget.job()), place / backend)
    model = run(folder, placement) if backend == "verl" else go_on(folder, lambda line: None)
    lines = (folder.path / "metrics.jsonl").read_text().splitlines()
    return Learned([json.loads(line)["reward"] for line in lines], rewards(budget, model))


def rewards(budget: Budget, model: Path) -> Rewards:
    """Rewards of attempts at the problems of the measurement, sampled as in training."""
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
    """Whether the interval of the rise is above 0."""
    low = difference(learned.rewards, before).low
    return low is not None and low > 0


def overlap(first: Estimate, second: Estimate) -> bool:
    """Whether two intervals overlap."""
    assert first.low is not None and first.high is not None and second.low is not None and second.high is not None
    return first.low <= second.high and second.low <= first.high


def table(before: Rewards, runs: Mapping[str, Learned]) -> str:
    """The table of rewards on the problems of the measurement, and the rewards of the steps."""
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
    """Text that says what was trained and how it was measured."""
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
    print(f"{table(before, runs)}\n\n{caption(budget)} {conditions('benchmarks.verl_learning')}", flush=True)
    if not all(rises(before, learned) for learned in runs.values()):
        sys.exit("the reward does not rise on both")
    if not overlap(runs["embedded"].reward, runs["verl"].reward):
        sys.exit("the rewards after both do not overlap")


if __name__ == "__main__":
    tyro.cli(main)
