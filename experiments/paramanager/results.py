"""The paper's tables and figures from one command: `make results-paramanager`.

    python -m experiments.paramanager.results

Trains what is missing under runs/, collects the SFT data, evaluates what is not evaluated yet, and writes results.json,
the plots and the tables of README.md. Stopped at any point, the same command goes on.

    python -m experiments.paramanager.results --evaluate 0/2    # and, in another shell, --evaluate 1/2

Each only evaluates its half of what is trained already. Then the first command finds it done.
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
    """The paper's tables and figures: train what is missing, evaluate, write."""

    n: int = 80
    """Held-out problems, of all tasks together."""
    out: Path = HERE
    """Where results.json, plots and README.md go."""


async def collect(lab: Laboratory) -> dict[str, Any]:
    """All tables and figures but their conditions. Evaluates whatever is missing."""
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
    """What every method takes, and how much faster the manager is than one that makes one call at a time."""
    rows, points = [], dict[str, tuple[Point, Point]]()
    for method, setting in (*plan.MANAGERS.items(), *plan.baselines("seen")):
        many = await _point(lab, method, setting)
        alone = await _point(lab, method, replace(setting, alone=True))
        rows.append(tables.timed(many, alone))
        points.setdefault(method, (many, alone))
    return {"table2": rows, "speedup": [tables.speedup(points["paramanager"], points["serial"])]}


async def _table3(lab: Laboratory, ours: Point) -> list[Row]:
    """Models that nobody has met in training, each by itself and as a manager's pool; then the pool of the training."""
    alone = [await _point(lab, method, setting) for method, setting in plan.baselines("unseen")]
    managed = await _point(lab, ours.method, plan.UNSEEN)
    unseen = [{**tables.row(point, plan.TASKS), "pool": "unseen"} for point in (*alone, managed)]
    return [*unseen, {**tables.row(ours, plan.TASKS), "pool": "seen"}]


async def _robustness(lab: Laboratory, method: str) -> list[Row]:
    """A manager at every rate of failing calls."""
    settings = plan.failing(method)
    return tables.robust({rate: await _point(lab, method, setting) for rate, setting in settings.items()})


def _over_training(lab: Laboratory, runs_of_methods: Mapping[str, str], names: tuple[str, ...]) -> list[Row]:
    """Numbers of some runs' metrics.jsonl, by method."""
    return [
        line
        for method, run in runs_of_methods.items()
        for line in tables.over_training(method, run, metrics(lab.runs / run), names)
    ]


def conditions(options: Options, lab: Laboratory) -> dict[str, Any]:
    """Under which all of it was measured."""
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
    """What is missing: rehearsals, the trajectories that follow from them, and what learns from those."""
    train_missing(folder, (runs.REHEARSED,))
    if not finished(folder / runs.SFT):
        collect_missing(folder)
    train_missing(folder, runs.TRAINED, runs.BASES, runs.EPISODES)


EXPERIMENT = script.Experiment(HERE, Laboratory, Design, train, collect, conditions, render)
make = EXPERIMENT.make

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main(Options, __doc__))
