"""Figures 4, 5 and 6 as SVG, from results.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.shared.plots import Rows, curve, save

COLOURS = {
    "base": "#8a8f98",
    "random": "#d98c3f",
    "balanced": "#5d9c59",
    "adaptive": "#2a6fb0",
    "marsrl": "#2a6fb0",
    "marsrl-s": "#d98c3f",
    "marsrl-vc": "#7a5aa6",
}
"""Colours by method."""


def draw(results: Mapping[str, Any], folder: Path) -> None:
    """Write figure4.svg, figure5.svg and figure6.svg."""
    save({"figure4": figure4, "figure5": figure5, "figure6": figure6}, results, folder, "marsrl")


def figure4(rows: Rows) -> Figure:
    """Figure 4: results of each sampling strategy, one point per training."""
    panels = {
        "own_system": "system %",
        "system": "system %, base's solver",
        "verifier_accuracy": "verifier accuracy %",
        "recall": "recall of errors %",
        "false_alarms": "false alarms %",
    }
    figure, axes = plt.subplots(1, len(panels), figsize=(2.4 * len(panels), 2.8), layout="constrained")
    methods = list(dict.fromkeys(row["method"] for row in rows))
    for panel, (name, title) in zip(axes, panels.items(), strict=True):
        for x, method in enumerate(methods):
            _points(panel, x, [row[name] for row in rows if row["method"] == method], COLOURS[method])
        panel.set_xticks(range(len(methods)), methods, rotation=30)
        panel.set(title=title, xlim=(-0.5, len(methods) - 0.5))
    return figure


def figure5(rows: Rows) -> Figure:
    """Figure 5: the verifier over training, as the mean of a strategy's trainings."""
    panels = {
        "accuracy": "verifier accuracy %",
        "recall": "recall of errors %",
        "false_alarms": "false alarms %",
        "judged_wrong_solutions": "wrong ones among the judged %",
    }
    values = {name: _lines(rows, lambda row, name=name: row[name]) for name in panels}
    return _over_training(panels, values, 100)


def figure6(rows: Rows) -> Figure:
    """Figure 6: lengths of the outputs of each stream over training."""
    streams = dict.fromkeys(stream for row in rows for stream in row["tokens"]) or {"solver": None}
    values = {stream: _lines(rows, lambda row, stream=stream: row["tokens"].get(stream)) for stream in streams}
    return _over_training({stream: f"{stream}, tokens" for stream in streams}, values, 1)


Lines = Mapping[str, Sequence[tuple[int, float]]]
"""(Step, value) pairs by method."""


def _lines(rows: Rows, value: Any) -> Lines:
    """Mean over the trainings of a method, at each step with a value."""
    found: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        if value(row) is not None:
            found.setdefault(row["method"], {}).setdefault(row["step"], []).append(value(row))
    return {method: [(step, fmean(of_one)) for step, of_one in sorted(at.items())] for method, at in found.items()}


def _over_training(panels: Mapping[str, str], values: Mapping[str, Lines], factor: float) -> Figure:
    figure, axes = plt.subplots(1, len(panels), figsize=(3 * len(panels), 2.8), layout="constrained", squeeze=False)
    for panel, (name, title) in zip(axes[0], panels.items(), strict=True):
        for method, line in values[name].items():
            steps, heights = [step for step, _ in line], [factor * value for _, value in line]
            curve(panel, steps, heights, method, COLOURS[method])
        panel.set(title=title, xlabel="training step")
    if any(values.values()):
        axes[0][0].legend()
    return figure


def _points(axes: Axes, x: float, estimates: Iterable[Mapping[str, Any]], colour: str) -> None:
    """Draw estimates side by side, with their intervals."""
    known = [estimate for estimate in estimates if estimate["mean"] is not None]
    for i, estimate in enumerate(known):
        mean, low, high = (100 * estimate[name] for name in ("mean", "low", "high"))
        at = x + (i - (len(known) - 1) / 2) * 0.18
        axes.errorbar([at], [mean], [[mean - low], [high - mean]], fmt="o", ms=4, lw=1, color=colour)
