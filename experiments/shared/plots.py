"""Curves over training. The style of all plots is that of the arena's."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from orgthink.arena.plots import Rows, save

__all__ = ["Rows", "curve", "save"]


def curve(axes: Axes, steps: Sequence[float], values: Sequence[float], label: str, colour: str) -> None:
    """A faint line of the values, and a line of their running mean over ten steps."""
    smooth = [sum(near) / len(near) for near in (values[max(0, i - 5) : i + 5] for i in range(len(values)))]
    axes.plot(steps, values, color=colour, lw=0.5, alpha=0.35)
    axes.plot(steps, smooth, color=colour, lw=1.5, label=label)
