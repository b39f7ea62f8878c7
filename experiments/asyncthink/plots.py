"""Figures 5, 6 and 7 as SVG, from results.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.asyncthink.runs import SEQUENTIAL
from experiments.shared.plots import Rows, curve, save

COLOURS = {"sequential": "#8a8f98", "parallel": "#d98c3f", "asyncthink": "#2a6fb0"}
"""Colours by the first word of a method's name."""
FORMS = (("o", "-"), ("s", "--"))
"""Marker and line style of each checkpoint of the baselines."""


def draw(results: Mapping[str, Any], folder: Path) -> None:
    """Write figure5.svg, figure6.svg and figure7.svg."""
    save({"figure5": figure5, "figure6": figure6, "figure7": figure7}, results, folder, "asyncthink")


def figure5(rows: Rows) -> Figure:
    """Bars: share of attempts with at least `a` correct solutions, one bar per method."""
    figure, axes = plt.subplots(figsize=(6.4, 3.4))
    selected = [row for row in rows if row["method"] in COLOURS]
    for i, row in enumerate(selected):
        shares = row["at_least"]
        at = [a + (i - (len(selected) - 1) / 2) * 0.26 for a in range(1, len(shares) + 1)]
        means = [100 * share["mean"] for share in shares]
        spread = [
            [100 * (share["mean"] - share["low"]) for share in shares],
            [100 * (share["high"] - share["mean"]) for share in shares],
        ]
        axes.bar(at, means, 0.24, yerr=spread, capsize=2, color=_colour(row["method"]), label=row["method"])
    most = max(len(row["at_least"]) for row in selected)
    axes.set_xticks(range(1, most + 1), [f"≥ {a}" for a in range(1, most + 1)])
    axes.set(xlabel="different correct solutions", ylabel="% of attempts", ylim=(0, 100))
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(selected))
    return figure


def figure6(rows: Rows) -> Figure:
    """Lines: accuracy, concurrency, forks and latency over training, one line per run."""
    panels = {
        "accuracy": ("accuracy R_A", 1.0),
        "all_correct": ("all correct %", 100.0),
        "concurrency_pool": ("η (agents at work)", 1.0),
        "forks": ("forks an episode", 1.0),
        "critical_path_steps": ("critical path (steps)", 1.0),
    }
    figure, axes = plt.subplots(1, len(panels), figsize=(3 * len(panels), 2.8), layout="constrained")
    for panel, (name, (title, factor)) in zip(axes, panels.items(), strict=True):
        for method in dict.fromkeys(row["method"] for row in rows):
            line = [row for row in rows if row["method"] == method and row[name] is not None]
            steps, values = [row["step"] for row in line], [factor * row[name] for row in line]
            curve(panel, steps, values, method, _colour(method))
        panel.set(title=title, xlabel="training step")
    if rows:
        axes[0].legend()
    return figure


def figure7(rows: Rows) -> Figure:
    """Points: all-correct over critical-path latency, one point per budget."""
    figure, axes = plt.subplots(figsize=(6.4, 4))
    for method, model in dict.fromkeys((row["method"], row["model"]) for row in rows):
        of_one = [row for row in rows if (row["method"], row["model"]) == (method, model)]
        whole = [row for row in of_one if row["worker_budget"] == row["budget"]]
        label = f"{method} (trained at {SEQUENTIAL[model]})" if model in SEQUENTIAL else method
        form = FORMS[list(SEQUENTIAL).index(model)] if model in SEQUENTIAL else ("D", "-")
        _frontier(axes, whole, method, label, *form)
        workers = [row for row in of_one if row["worker_budget"] != row["budget"]]
        if workers:
            _frontier(axes, workers, method, f"{method}, only the workers' budget varied", "^", ":")
    axes.set(xlabel="critical path (decoding steps)", ylabel="all correct %", ylim=(0, 100), xlim=(0, None))
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2, fontsize="small")
    return figure


def _frontier(axes: Axes, rows: Rows, method: str, label: str, marker: str, line: str) -> None:
    ordered = sorted(rows, key=lambda row: (row["budget"], row["worker_budget"]))
    x = [row["critical_path_steps"]["mean"] for row in ordered]
    shares = [row["all_correct"] for row in ordered]
    y = [100 * share["mean"] for share in shares]
    spread = [[100 * (s["mean"] - s["low"]) for s in shares], [100 * (s["high"] - s["mean"]) for s in shares]]
    axes.errorbar(x, y, spread, marker=marker, ls=line, color=_colour(method), label=label, ms=4, lw=1, elinewidth=0.6)


def _colour(method: str) -> str:
    return COLOURS.get(method.split(" (")[0], "#7a5aa6")
