"""Accuracy against tokens, replies, critical path and seconds, as SVG. Needs the extra `plots`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

Rows = Sequence[Mapping[str, Any]]

PANELS = {
    "tokens": "sampled tokens",
    "cost": "replies",
    "critical_path_steps": "critical path (steps)",
    "seconds": "seconds alone",
}
"""Column → title of its panel."""
STYLE = {"svg.fonttype": "none", "axes.grid": True, "grid.alpha": 0.25, "svg.hashsalt": "arena"}


def draw(results: Mapping[str, Any], folder: Path) -> None:
    """Write frontier-CAP.svg for every cap at which several methods ran. The same data give the same bytes."""
    for cap in drawn(results):
        with plt.rc_context():
            plt.rcdefaults()  # a matplotlibrc in the current folder is not trusted
            plt.rcParams.update(STYLE)
            figure, axes = plt.subplots(2, 2, figsize=(12, 9), layout="constrained")
            for panel, (price, title) in zip(axes.flat, PANELS.items(), strict=True):
                _panel(panel, results["tables"][cap], price)
                panel.set(xlabel=title, ylabel="accuracy %")
            content = BytesIO()
            figure.savefig(content, format="svg", metadata={"Date": None})
            plt.close(figure)
            write_whole(folder / f"frontier-{cap}.svg", content.getvalue())


def _panel(panel: Axes, rows: Rows, price: str) -> None:
    """One price. The line joins the methods that no other method beats; bars are the intervals of accuracy."""
    known = [row for row in rows if row["status"] == OK and row[price]["mean"] is not None]
    points = [(row[price]["mean"], 100 * row["accuracy"]["mean"]) for row in known]
    best = frontier(points)
    panel.step([x for x, _ in best], [y for _, y in best], where="post", color="#444", lw=1, alpha=0.6)
    for row, point in zip(known, points, strict=True):
        panel.errorbar(*point, yerr=_error(row["accuracy"]), fmt="o", ms=4, color="#2a6fb0")
        panel.annotate(row["method"], point, xytext=(5, 3), textcoords="offset points", fontsize=7)
    panel.set_xlim(left=0)


def _error(estimate: Mapping[str, Any]) -> list[list[float]] | None:
    """The distances from the mean to both ends in percent; `None` without an interval."""
    if estimate["low"] is None or estimate["high"] is None:
        return None
    mean = estimate["mean"]
    return [[100 * max(0.0, mean - estimate["low"])], [100 * max(0.0, estimate["high"] - mean)]]
