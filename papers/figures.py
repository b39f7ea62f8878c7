"""A figure for each paper: the share of solved problems against the critical path, one point a row."""

from __future__ import annotations

from pathlib import Path

from papers.claims import Rows, path, solved
from papers.outcomes import HERE


def draw(paper: str, found: Rows) -> Path:
    """Write `PAPER.svg`. The same outcomes give the same bytes."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": paper, "svg.fonttype": "none", "font.size": 9}
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 3.6), layout="constrained")
    for label, outcomes in found.items():
        share, steps = solved(outcomes), path(outcomes)
        x, y = steps.mean or 0.0, 100 * (share.mean or 0.0)
        errors = [[y - 100 * (share.low or 0.0)], [100 * (share.high or 0.0) - y]]
        axes.errorbar(x, y, yerr=errors, fmt="o", capsize=3)
        axes.annotate(label, (x, y), textcoords="offset points", xytext=(6, 4))
    axes.set(xlabel="critical path (decoding steps)", ylabel="solved completely (%)", ylim=(0, 100), xlim=(0, None))
    axes.grid(alpha=0.3)
    file = HERE / f"{paper}.svg"
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)
    return file
