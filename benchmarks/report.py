"""The result of a benchmark."""

from __future__ import annotations

from typing import NamedTuple


class Line(NamedTuple):
    """A ratio of two quantities that were measured in one run."""

    name: str
    """Name of the ratio: numerator over denominator."""
    value: float
    """Value of the ratio."""
    goal: str
    """Goal, as text."""
    met: bool
    """Whether the goal was reached."""
    conditions: str
    """Conditions: model, load, sizes."""
