"""The form of a benchmark's result."""

from __future__ import annotations

from typing import NamedTuple


class Line(NamedTuple):
    """One ratio of two things measured in one run."""

    name: str
    """What over what."""
    value: float
    """The ratio."""
    goal: str
    """What was aimed at."""
    met: bool
    """Whether it was reached."""
    conditions: str
    """Model, load, sizes."""
