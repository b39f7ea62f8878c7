"""Figures 3 to 6 as SVG, from results.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.shared.plots import Rows, curve, save

COLOURS = {"paramanager": "#2a6fb0", "no-sft": "#8a8f98", "no-diversity": "#d98c3f"}
"""Colours by method."""
PARTS = ("#2a6fb0", "#d98c3f", "#5d9c59", "#7a5aa6", "#8a8f98", "#c2577a", "#4aa3a2")
"""Colours of the parts of a bar, in order."""


def draw(results: Mapping[str, Any], folder: Path) -> None:
    """Write figure3.svg, figure4.svg, figure5.svg and figure6.svg."""
    figures = {"figure3": figure3, "figure4": figure4, "figure5": figure5, "figure6": figure6}
    save(figures, results, folder, "paramanager")


def figure3(rows: Rows) -> Figure:
    """Figure 3: reinforcement learning with and without SFT before it."""
    titles = ("rounds", "reward", "format reward", "all correct %")
    return _over_training(rows, dict(zip(("rounds", "reward", "format_reward", "all_correct"), titles, strict=True)))


def figure4(rows: Rows) -> Figure:
    """Figure 4: the efficiency rewards over training, with cost and context length."""
    panels = {
        "cost_reward": "cost reward",
        "length_reward": "length reward",
        "cost_units": "cost units",
        "context_tokens": "tokens of the manager's context",
    }
    return _over_training(rows, panels)


def figure5(rows: Rows) -> Figure:
    """Figure 5: shares of tools and of models, one bar per manager."""
    panels = {"tools": "% of calls", "models": "% of what models were asked"}
    figure, axes = plt.subplots(1, len(panels), figsize=(6 * len(panels), 3.2), layout="constrained")
    for panel, (name, title) in zip(axes, panels.items(), strict=True):
        _stacked(panel, [row["method"] for row in rows], [row[name] for row in rows])
        panel.set(title=title, xlim=(0, 100))
    return figure


def figure6(rows: Rows) -> Figure:
    """Figure 6: training with and without the diversity reward."""
    panels = {
        "all_correct": "all correct %",
        "unique_tools": "different tools an episode",
        "calls_per_round": "calls a round",
        "diversity_reward": "diversity reward",
    }
    return _over_training(rows, panels)


def _over_training(rows: Rows, panels: Mapping[str, str]) -> Figure:
    """One panel per number, with one line per method."""
    figure, axes = plt.subplots(1, len(panels), figsize=(3 * len(panels), 2.8), layout="constrained")
    for panel, (name, title) in zip(axes, panels.items(), strict=True):
        factor = 100 if title.endswith("%") else 1
        for method in dict.fromkeys(row["method"] for row in rows):
            line = [row for row in rows if row["method"] == method and row[name] is not None]
            steps, values = [row["step"] for row in line], [factor * row[name] for row in line]
            curve(panel, steps, values, method, COLOURS[method])
        panel.set(title=title, xlabel="training step")
    if rows:
        axes[0].legend()
    return figure


def _stacked(axes: Axes, methods: list[str], shares: list[Mapping[str, Any]]) -> None:
    """Draw bars of shares, with the first method on top."""
    names = sorted({name for of_one in shares for name in of_one})
    at = range(len(methods), 0, -1)
    done = [0.0] * len(methods)
    for name, colour in zip(names, PARTS, strict=False):
        parts = [100 * (of_one[name]["mean"] or 0) if name in of_one else 0.0 for of_one in shares]
        axes.barh(list(at), parts, 0.7, left=done, color=colour, label=name)
        done = [left + part for left, part in zip(done, parts, strict=True)]
    axes.set_yticks(list(at), methods)
    if names:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=4)
