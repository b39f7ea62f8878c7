"""The style of all plots. The same data give the same SVG files, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Rows = Sequence[Mapping[str, Any]]

_STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
}


def save(figures: Mapping[str, Callable[[Rows], Figure]], results: Mapping[str, Any], folder: Path, salt: str) -> None:
    """Write NAME.svg for every figure from the rows with its name. `salt` determines the ids inside the files."""
    with plt.rc_context({**_STYLE, "svg.hashsalt": salt}):
        for name, figure in figures.items():
            picture = figure(results[name])
            picture.savefig(folder / f"{name}.svg", format="svg", metadata={"Date": None}, bbox_inches="tight")
            plt.close(picture)


def curve(axes: Axes, steps: Sequence[float], values: Sequence[float], label: str, colour: str) -> None:
    """A faint line of the values, and a line of their running mean over ten steps."""
    smooth = [sum(near) / len(near) for near in (values[max(0, i - 5) : i + 5] for i in range(len(values)))]
    axes.plot(steps, values, color=colour, lw=0.5, alpha=0.35)
    axes.plot(steps, smooth, color=colour, lw=1.5, label=label)
