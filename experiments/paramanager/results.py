"""The paper's tables and figures from one command: `make results-paramanager`.

    python -m experiments.paramanager.results

The command trains missing runs under runs/, collects the SFT data, runs missing evaluations, and writes results.json,
the plots and the tables of README.md. If it is stopped, the same command continues.

    python -m experiments.paramanager.results --evaluate 0/2    # and, in another shell, --evaluate 1/2

With `--evaluate`, a process only evaluates its share of the settings that are trained already. The first command then
reuses the results.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from experiments.paramanager import plan, runs, tables
from experiments.paramanager.collect import collect_missing, retained
from experiments.paramanager.plan import Design, Laboratory, Setting
from experiments.paramanager.readme import render
from experiments.paramanager.tables import Point, Row
from experiments.shared import script
from experiments.shared.conditions import circumstances
from experiments.shared.runs import finished, metrics, train_missing

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Options(script.SharedOptions):
    """Make the paper's tables and figures: train missing runs, evaluate, and write the results."""

    n: int = 80
    """Number of held-out problems of all tasks together."""
    out: Path = HERE
    """Folder for results.json, the plots and README.md."""


async def collect(lab: Laboratory) -> dict[str, Any]:
    """All tables and figures without their conditions. Missing evaluations are run."""
    managers = [await _point(lab, method, setting) for method, setting in plan.MANAGERS.items()]
    baselines = [await _point(lab, method, setting) for method, setting in plan.baselines("seen")]
    ours, *others = managers
    plainer = await _point(lab, "no-diversity", plan.NO_DIVERSITY)
    before = await _point(lab, "base", plan.REHEARSED)
    return {
        "table1": [tables.row(point, plan.TASKS) for point in (*managers, *baselines)],
        **await _table2(lab),
        "table3": await _table3(lab, ours),
        "table6": [
            tables.target(cost, await _point(lab, "paramanager", Setting(run))) for cost, run in runs.COSTS.items()
        ],
        "robustness": [line for method in plan.ROBUST for line in await _robustness(lab, method)],
        "comparison": [tables.comparison(ours, theirs) for theirs in (*baselines, *others, plainer)],
        "figure3": _over_training(lab, {"paramanager": runs.PARAMANAGER, "no-sft": runs.NO_SFT}, tables.COLLAPSE),
        "figure4": _over_training(lab, {"paramanager": runs.PARAMANAGER}, tables.EFFICIENCY),
        "figure5": [tables.distribution(point) for point in (before, managers[-1], ours, plainer)],
        "figure6": _over_training(
            lab, {"paramanager": runs.PARAMANAGER, "no-diversity": runs.NO_DIVERSITY}, tables.DIVERSITY
        ),
    }


async def _point(lab: Laboratory, method: str, setting: Setting) -> Point:
    return Point(method, setting.model, await lab.attempts(setting))


async def _table2(lab: Laboratory) -> dict[str, list[Row]]:
    """Table 2: cost and duration of every method, and the speedup of the manager over one with one call per round."""
    rows, points = [], dict[str, tuple[Point, Point]]()
    for method, setting in (*plan.MANAGERS.items(), *plan.baselines("seen")):
        many = await _point(lab, method, setting)
        alone = await _point(lab, method, replace(setting, alone=True))
        rows.append(tables.timed(many, alone))
        points.setdefault(method, (many, alone))
    return {"table2": rows, "speedup": [tables.speedup(points["paramanager"], points["serial"])]}


async def _table3(lab: Laboratory, ours: Point) -> list[Row]:
    """Table 3: unseen models alone and as the manager's pool; then the pool of the training."""
    alone = [await _point(lab, method, setting) for method, setting in plan.baselines("unseen")]
    managed = await _point(lab, ours.method, plan.UNSEEN)
    unseen = [{**tables.row(point, plan.TASKS), "pool": "unseen"} for point in (*alone, managed)]
    return [*unseen, {**tables.row(ours, plan.TASKS), "pool": "seen"}]


async def _robustness(lab: Laboratory, method: str) -> list[Row]:
    """Accuracy and cost of a manager at every rate of failing calls."""
    settings = plan.failing(method)
    return tables.robust({rate: await _point(lab, method, setting) for rate, setting in settings.items()})


def _over_training(lab: Laboratory, runs_of_methods: Mapping[str, str], names: tuple[str, ...]) -> list[Row]:
    """Metrics over training for several methods."""
    return [
        line
        for method, run in runs_of_methods.items()
        for line in tables.over_training(method, run, metrics(lab.runs / run), names)
    ]


def conditions(options: Options, lab: Laboratory) -> dict[str, Any]:
    """Conditions of all measurements."""
    return {
        "task": plan.TASK,
        "split": "test",
        **asdict(lab.design),
        "temperature": 1.0,
        "capacity": plan.CAPACITY,
        "tokens": {**plan.TOKENS, "agents of the pool": plan.AGENT_TOKENS},
        "settings": plan.SETTINGS,
        "pools": {name: dict(of) for name, of in runs.POOLS.items()},
        "trajectories": None if options.stand_in else retained(options.runs),
        **circumstances(options, lab, "paramanager", () if options.stand_in else runs.TRAINED),
    }


def train(folder: Path) -> None:
    """Train the missing runs: first the rehearsed manager, then collect its trajectories, then train the other runs."""
    train_missing(folder, (runs.REHEARSED,))
    if not finished(folder / runs.SFT):
        collect_missing(folder)
    train_missing(folder, runs.TRAINED, runs.BASES, runs.EPISODES)


EXPERIMENT = script.Experiment(HERE, Laboratory, Design, train, collect, conditions, render)
make = EXPERIMENT.make

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main(Options, __doc__))
