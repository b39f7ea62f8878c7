"""The paper's tables and figures from one command: `make results-asyncthink`.

    python -m experiments.asyncthink.results

The command trains missing runs under runs/, runs missing evaluations, and writes results.json, the plots and the tables
of README.md. If it is stopped, the same command continues.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from experiments.asyncthink import plan, runs, tables
from experiments.asyncthink.plan import Design, Laboratory, Setting
from experiments.asyncthink.readme import render
from experiments.asyncthink.tables import Point, Row, attempt_of
from experiments.shared import script
from experiments.shared.conditions import circumstances
from experiments.shared.runs import metrics, train_missing
from orgthink.episode import Episode

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Options(script.Options):
    """Make the paper's tables and figures: train missing runs, evaluate, and write the results."""

    out: Path = HERE
    """Folder for results.json, the plots and README.md."""


async def collect(lab: Laboratory) -> dict[str, Any]:
    """All tables and figures without their conditions. Missing evaluations are run."""
    budget = lab.design.budget
    ours, *ablations = [
        await _timed(lab, await _asyncthink(lab, method, Setting(run, "asyncthink", budget)))
        for method, run in {"asyncthink": runs.ASYNCTHINK, **runs.ABLATIONS}.items()
    ]
    baselines = await _baselines(lab, plan.TASK, lab.design.baseline_budgets)
    equal = {
        method: [await _timed(lab, point) for point in points if point.budget == budget]
        for method, points in baselines.items()
    }
    needed = {method: tables.cheapest(points, ours.all_correct) for method, points in baselines.items()}
    frontier = [point for points in baselines.values() for point in points]
    return {
        "figure5": tables.contest(equal.values(), ours, runs.SEQUENTIAL),
        "table3": tables.comparison([ours, *ablations], ours),
        "figure6": _trajectories(lab),
        "figure7": [tables.row(point) for point in [*frontier, *await _frontier(lab, ours)]],
        "table4": await _sudoku(lab),
        "parity": tables.parity(ours, {method: await _timed(lab, point) for method, point in needed.items()}),
    }


async def _baselines(lab: Laboratory, task: str, budgets: Iterable[int]) -> dict[str, list[Point]]:
    """Points of sequential and parallel thinking for both checkpoints at every budget."""
    found: dict[str, list[Point]] = {"sequential": [], "parallel": []}
    for run in runs.SEQUENTIAL:
        thinkers = await lab.thinkers(run, task, max(budgets))
        for budget in budgets:
            found["sequential"].append(_point("sequential", run, budget, thinkers.sequential(budget)))
            found["parallel"].append(_point("parallel", run, budget, thinkers.parallel(budget)))
    return found


async def _asyncthink(lab: Laboratory, method: str, setting: Setting) -> Point:
    return _point(method, setting.model, setting.budget, await lab.episodes(setting), setting.worker_budget)


async def _frontier(lab: Laboratory, ours: Point) -> list[Point]:
    """Points of AsyncThink with other budgets: for all agents, then for the workers only."""
    total = [(budget, None) for budget in lab.design.agent_budgets]
    workers = [(lab.design.budget, budget) for budget in lab.design.worker_budgets]
    settings = [
        Setting(runs.ASYNCTHINK, "asyncthink", budget, worker, samples=lab.design.frontier_seeds)
        for budget, worker in (*total, *workers)
    ]
    return [ours, *[await _asyncthink(lab, "asyncthink", setting) for setting in settings]]


async def _sudoku(lab: Laboratory) -> list[Row]:
    """Table 4: a task that the models have only seen in sequential form."""
    budget = lab.design.budget
    baselines = await _baselines(lab, "sudoku", [budget])
    ours = await _asyncthink(lab, "asyncthink", Setting(runs.ASYNCTHINK, "asyncthink", budget, task="sudoku"))
    return tables.contest(baselines.values(), ours, runs.SEQUENTIAL)


async def _timed(lab: Laboratory, point: Point) -> Point:
    """The point with the seconds of a few episodes that ran one at a time."""
    organization = point.method if point.method in ("sequential", "parallel") else "asyncthink"
    episodes = await lab.episodes(Setting(point.model, organization, point.budget, alone=True))
    timed = [(episode.problem.id, episode.seconds) for episode in episodes]
    return replace(point, timed=timed)


def _point(method: str, run: str, budget: int, episodes: Iterable[Episode], worker: int | None = None) -> Point:
    return Point(method, run, budget, [attempt_of(episode) for episode in episodes], worker)


def _trajectories(lab: Laboratory) -> list[Row]:
    without = "-concurrency reward"
    compared = {"asyncthink": runs.ASYNCTHINK, without: runs.ABLATIONS[without]}
    lines = {run: metrics(lab.runs / run) for run in compared.values()}
    return [line for method, run in compared.items() for line in tables.trajectory(method, run, lines[run])]


def conditions(options: Options, lab: Laboratory) -> dict[str, Any]:
    """Conditions of all measurements."""
    return {
        "task": plan.TASK,
        "split": "test",
        **asdict(lab.design),
        "seeds": plan.SEEDS,
        "traces": plan.TRACES,
        "temperature": 1.0,
        "capacity": plan.CAPACITY,
        **circumstances(options, lab, "asyncthink", () if options.stand_in else runs.TRAINED),
    }


def train(folder: Path) -> None:
    """Train the missing runs."""
    train_missing(folder, runs.TRAINED, runs.BASES)


EXPERIMENT = script.Experiment(HERE, Laboratory, Design, train, collect, conditions, render)
make = EXPERIMENT.make

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main(Options, __doc__))
