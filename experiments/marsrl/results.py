"""The paper's tables and figures from one command: `make results-marsrl`.

    python -m experiments.marsrl.results

The command trains missing runs under runs/, runs missing evaluations, and writes results.json, the plots and the tables
of README.md. If it is stopped, the same command continues.

    python -m experiments.marsrl.results --evaluate 0/2    # and, in another shell, --evaluate 1/2

With `--evaluate`, a process only evaluates its share of the settings that are trained already. The first command then
reuses the results.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from experiments.marsrl import plan, runs, tables
from experiments.marsrl.plan import Design, Laboratory, Setting
from experiments.marsrl.readme import render
from experiments.marsrl.tables import Point, Row
from experiments.shared import script
from experiments.shared.conditions import circumstances
from experiments.shared.runs import metrics, train_missing, trained_tokens

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Options(script.SharedOptions):
    """Make the paper's tables and figures: train missing runs, evaluate, and write the results."""

    out: Path = HERE
    """Folder for results.json, the plots and README.md."""


async def collect(lab: Laboratory) -> dict[str, Any]:
    """All tables and figures without their conditions. Missing evaluations are run."""
    return {
        **await _table1(lab),
        "table2": await _table2(lab),
        "table3": [
            tables.solved_by(solver, await _point(lab, "marsrl", Setting(runs.MARSRL, solver)))
            for solver in runs.SOLVERS
        ],
        **await _figure4(lab),
        "figure5": [
            line
            for strategy, recipe in runs.STRATEGIES.items()
            for run in lab.trainings(recipe)
            for line in tables.verifying(strategy, run, metrics(lab.runs / run))
        ],
        "figure6": [
            line for method, run in runs.PARTS.items() for line in tables.lengths(method, run, metrics(lab.runs / run))
        ],
    }


async def _point(lab: Laboratory, method: str, setting: Setting) -> Point:
    return Point(method, setting.model, setting.task, await lab.attempts(setting))


async def _table1(lab: Laboratory) -> dict[str, list[Row]]:
    """Table 1: both tasks, with few problems and many attempts at each."""
    rows, reductions = [], []
    for task, recipe in runs.TASKS.items():
        base = await _point(lab, "base", Setting(runs.BASE, task=task, averaged=True))
        ours, *repeats = [
            await _point(lab, "marsrl", Setting(run, task=task, averaged=True)) for run in lab.trainings(recipe)
        ]
        rows += [tables.row(base), tables.row(ours, repeats)]
        reductions.append(tables.error_reduction(ours, base))
    return {"table1": rows, "error_reduction": reductions}


async def _table2(lab: Laboratory) -> list[Row]:
    """Table 2: different sets of trained agents."""
    rows = [tables.row(await _point(lab, "base", Setting(runs.BASE))) | {"trained_tokens": 0}]
    for method, recipe in runs.PARTS.items():
        ours, *repeats = [await _point(lab, method, Setting(run)) for run in lab.trainings(recipe)]
        tokens = trained_tokens(lab.runs / recipe)
        rows.append(tables.row(ours, repeats) | {"trained_tokens": tokens})
    return rows


async def _figure4(lab: Laboratory) -> dict[str, list[Row]]:
    """Figure 4: the sampling strategies on the base's solutions and with their own solvers."""
    base = await _point(lab, "base", Setting(runs.BASE))
    rows, found = [tables.strategy(base, base, base)], dict[str, list[Point]]()
    for strategy, recipe in runs.STRATEGIES.items():
        found[strategy] = [await _point(lab, strategy, Setting(run, solver=runs.BASE)) for run in lab.trainings(recipe)]
        for point in found[strategy]:
            rows.append(tables.strategy(point, await _point(lab, strategy, Setting(point.model)), base))
    pairs = (("adaptive", "balanced"), ("balanced", "random"))
    return {"figure4": rows, "sampling": [tables.comparison(found[one], found[other]) for one, other in pairs]}


def conditions(options: Options, lab: Laboratory) -> dict[str, Any]:
    """Conditions of all measurements."""
    used = [run for recipe in runs.RECIPES for run in lab.trainings(recipe)]
    return {
        "task": plan.TASK,
        "split": "test",
        **asdict(lab.design),
        "averaged": plan.AVERAGED,
        "temperature": 1.0,
        "budgets": plan.BUDGETS,
        "passes": plan.PASSES,
        "rounds": plan.ROUNDS,
        **circumstances(options, lab, "marsrl", () if options.stand_in else used),
    }


def train(folder: Path) -> None:
    """Train the missing runs."""
    train_missing(folder, runs.TRAINED)


EXPERIMENT = script.Experiment(HERE, Laboratory, Design, train, collect, conditions, render)
make = EXPERIMENT.make

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main(Options, __doc__))
