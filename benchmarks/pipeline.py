"""MarsRL's schedules compared: delay, speed and learning curves, and what the simulation says of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks import pipeline_frontier, pipeline_prediction
from benchmarks.pipeline_prediction import Measured
from benchmarks.pipeline_runs import (
    LIVE,
    MOST,
    SCHEDULES,
    SETTINGS,
    Runs,
    Setting,
    Trained,
    measured,
    model_of,
    trainings,
    weighted,
)
from benchmarks.pipeline_simulation import Lengths
from benchmarks.pipeline_simulation import Schedule as Simulated
from benchmarks.report import Line
from orgthink.measure.estimate import Estimate, average
from orgthink.training.embedded import SLOTS
from orgthink.training.marsrl.rollout import ROLES, Schedule

BINS = 4
"""Number of bins of the learning curve, which starts at the first step."""


def run(model: Path | None = None, seeds: int = 3, share: float = 1.0) -> Iterator[Line]:
    """Ratios of each setting with a share of its tokens, what the simulation says of them, and its ratios at 64k."""
    if (model := model_of(model)) is None:
        print("orgthink train pocket-base --out runs/pocket-base adds the ratios of MarsRL's pipeline", flush=True)
        return
    lengths = asyncio.run(measured(model))
    for setting in [replace(one, tokens=int(one.tokens * share)) for one in SETTINGS]:
        runs = trainings(setting, model, seeds)
        for schedule in SCHEDULES[1:]:
            yield from compare(setting, schedule, runs, model)
        print(predicted(setting, runs, lengths), flush=True)
    yield from pipeline_frontier.run(lengths, MOST)


def compare(setting: Setting, schedule: Schedule, runs: Runs, model: Path) -> Iterator[Line]:
    """Ratios of a schedule and whole trajectories, of pairs with one seed."""
    wholes, others = runs["whole"], runs[schedule]
    pairs = list(zip(wholes, others, strict=True))
    shorter = over([whole.wait / other.wait for whole, other in pairs])
    faster = over([other.speed / whole.speed for whole, other in pairs])
    how = f"{model}, {torch.get_num_threads()} threads, {len(pairs)} seeds of {setting.tokens:,} trained tokens; "
    how += f"{mean(wholes, 'groups'):.1f} and {mean(others, 'groups'):.1f} groups an optimizer step; "
    how += f"whole and {schedule}: "
    waits = f"{mean(wholes, 'wait'):.2f} s and {mean(others, 'wait'):.2f} s"
    assert shorter.mean is not None and faster.mean is not None
    name = f"delay, whole trajectories ÷ {schedule}, {setting.name}"
    yield Line(name, shorter.mean, "≥ 10", shorter.mean >= 10, f"{how}{waits}, {interval(shorter)}")
    speeds = f"{mean(wholes, 'speed'):,.0f} and {mean(others, 'speed'):,.0f}, {interval(faster)}; "
    speeds += f"{mean(wholes, 'batch'):.0f} and {mean(others, 'batch'):.0f} rows a decoding step, "
    speeds += f"rollout {mean(wholes, 'share'):.0%} and {mean(others, 'share'):.0%} of the time"
    conditions = f"{how}{speeds}"
    name = f"trained tokens a second, {schedule} ÷ whole trajectories, {setting.name}"
    yield Line(name, faster.mean, "≥ 1.5", faster.mean >= 1.5, conditions)
    if len(wholes[0].lines) > 1:
        yield curves(setting, schedule, pairs)


def predicted(setting: Setting, runs: Runs, lengths: Sequence[Lengths]) -> str:
    """What the simulation says of the runs."""
    groups = round(mean(runs["whole"], "groups"))
    schedules = {
        "whole": Simulated(groups, problems=setting.whole),
        "pipeline": Simulated(groups, problems=setting.pipeline, segment=MOST),
        "queue": Simulated(setting.queue, live=LIVE),
    }
    works = {schedule: [one for run in runs[schedule] for one in run.work] for schedule in SCHEDULES}
    machine = pipeline_prediction.fitted(works["whole"], [one for work in works.values() for one in work], SLOTS)
    found = {s: Measured(schedules[s], mean(runs[s], "wait"), mean(runs[s], "pace")) for s in SCHEDULES}
    return pipeline_prediction.table(f"simulated and measured, {setting.name}", machine, found, lengths)


def mean(runs: Sequence[Trained], name: str) -> float:
    return sum(getattr(one, name) for one in runs) / len(runs)


def over(values: Sequence[float]) -> Estimate:
    """Mean over seeds with its interval."""
    return average((str(seed), value) for seed, value in enumerate(values))


def interval(estimate: Estimate) -> str:
    return "" if estimate.low is None else f"95 % [{estimate.low:.2f}, {estimate.high:.2f}]"


def curves(setting: Setting, schedule: Schedule, pairs: Sequence[tuple[Trained, Trained]]) -> Line:
    """Rewards of both schedules in bins of trained tokens, and their mean difference over the seeds."""
    conditions, gaps = [], []
    for whole, other in pairs:
        cells = [
            zip(curve(other, role, setting.tokens), curve(whole, role, setting.tokens), strict=True) for role in ROLES
        ]
        known = [a - b for role in cells for a, b in role if a is not None and b is not None]
        gaps.append(sum(known) / len(known))
    for role in ROLES:
        both = [[curve(one, role, setting.tokens) for one in runs] for runs in zip(*pairs, strict=True)]
        conditions.append(f"{role} " + " and ".join(" ".join(map(formatted, zip(*runs, strict=True))) for runs in both))
    gap = over(gaps)
    assert gap.mean is not None
    same = gap.low is not None and gap.high is not None and gap.low <= 0 <= gap.high
    how = f"over {setting.tokens:,} trained tokens, {interval(gap)}; by {BINS} bins of them, whole and {schedule}: "
    name = f"reward, {schedule} − whole trajectories, {setting.name}"
    return Line(name, gap.mean, "0 in its interval", same, how + "; ".join(conditions))


def curve(run: Trained, role: str, tokens: int) -> list[float | None]:
    """Mean reward of a role, binned by the number of tokens trained before."""
    bins: list[list[dict[str, Any]]] = [[] for _ in range(BINS)]
    before = 0
    for line in run.lines:
        if before < tokens:
            bins[before * BINS // tokens].append({"reward": line["rewards"][role], "outputs": line["outputs"]})
        before += line["trained_tokens"]
    return [weighted(lines, "reward") if any(one["reward"] is not None for one in lines) else None for lines in bins]


def formatted(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.2f}" if known else "–"
