"""Frontiers as SVG: accuracy against tokens, cost, critical path and seconds. Needs the extra `plots`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib

from orgthink.util.files import write_whole
from orgthink_arena.contest.rows import OK, frontier
from orgthink_arena.contest.tables import drawn

matplotlib.use("svg")
import matplotlib.pyplot as plt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rows = Sequence[Mapping[str, Any]]

PANELS = {
    "tokens": "sampled tokens",
    "cost": "replies",
    "critical_path_steps": "critical path (steps)",
    "seconds": "seconds alone",
}
"""Title of each panel."""

COLOURS = ("#2a6fb0", "#d98c3f", "#5d9c59", "#7a5aa6", "#8a8f98", "#c2577a", "#4aa3a2")
"""Of the groups, in order."""

WIDTH, HEIGHT = 0.3, 0.032
"""About the size of a label, as shares of a panel."""

_STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
}


def draw(results: Mapping[str, Any], folder: Path) -> None:
    """Write frontier-CAP.svg for every cap at which several methods ran."""
    caps = drawn(results)
    save(
        {f"frontier-{cap}": frontiers for cap in caps},
        {f"frontier-{cap}": results["tables"][cap] for cap in caps},
        folder,
        "arena",
    )


def save(figures: Mapping[str, Callable[[Rows], Figure]], results: Mapping[str, Any], folder: Path, salt: str) -> None:
    """Write NAME.svg for every figure from the rows with its name. `salt` determines the ids inside the files: the same
    data give the same files, byte for byte."""
    with plt.rc_context():
        plt.rcdefaults()  # a matplotlibrc in the current folder may be anybody's
        plt.rcParams.update({**_STYLE, "svg.hashsalt": salt})
        for name, figure in figures.items():
            picture, content = figure(results[name]), BytesIO()
            picture.savefig(content, format="svg", metadata={"Date": None}, bbox_inches="tight")
            plt.close(picture)
            write_whole(folder / f"{name}.svg", content.getvalue())


def frontiers(rows: Rows) -> Figure:
    """A panel for each price; the line joins the methods that no other one beats."""
    finished = [row for row in rows if row["status"] == OK]
    groups = dict.fromkeys(row["group"] for row in finished)
    colours = {group: COLOURS[i % len(COLOURS)] for i, group in enumerate(groups)}
    figure, axes = plt.subplots(2, 2, figsize=(12, 9), layout="constrained")
    for panel, (price, title) in zip(axes.flat, PANELS.items(), strict=True):
        _panel(panel, finished, price, colours)
        panel.set(xlabel=title, ylabel="accuracy %")
    handles = [
        plt.Line2D([], [], marker="o", ls="", color=colour, label=group or "–") for group, colour in colours.items()
    ]
    if len(groups) > 1:
        figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


def _panel(panel: Axes, rows: Rows, price: str, colours: Mapping[str, str]) -> None:
    """One price. Intervals are those of accuracy; those of the prices are in the table."""
    known = [row for row in rows if row[price]["mean"] is not None and row["accuracy"]["mean"] is not None]
    points = [(row[price]["mean"], 100 * row["accuracy"]["mean"]) for row in known]
    best = frontier(points)
    panel.step([x for x, _ in best], [y for _, y in best], where="post", color="#444", lw=1, alpha=0.6, zorder=0)
    for row, point in zip(known, points, strict=True):
        colour = colours[row["group"]]
        panel.errorbar(
            *point, yerr=_error(row["accuracy"], 100), fmt="o", ms=4, elinewidth=0.5, alpha=0.8, color=colour
        )
    panel.set_xlim(left=0)
    widest = max((x for x, _ in points), default=1) or 1
    for (x, y), place, row in zip(points, _places([(x / widest, y / 100) for x, y in points]), known, strict=True):
        panel.annotate(row["method"], (x, y), xytext=(5, 3 + 8 * place), textcoords="offset points", fontsize=7)


def _places(points: Sequence[tuple[float, float]]) -> list[int]:
    """How many lines above its point the label of each stands, so that none covers another; points are in 0 to 1."""
    taken, found = list[tuple[float, float]](), list[int]()
    for x, y in points:
        line = 0
        while any(abs(x - a) < WIDTH and abs(y + line * HEIGHT - b) < HEIGHT * 0.9 for a, b in taken):
            line += 1
        taken.append((x, y + line * HEIGHT))
        found.append(line)
    return found


def _error(estimate: Mapping[str, Any], factor: float) -> list[list[float]] | None:
    """The distances from the mean to both ends; `None` without an interval."""
    if estimate["low"] is None or estimate["high"] is None:
        return None
    mean = estimate["mean"]
    return [[factor * max(0.0, mean - estimate["low"])], [factor * max(0.0, estimate["high"] - mean)]]
