"""The formats of trainers by name, behind one signature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from orgthink.training.interchange import tinker, trl, verl
from orgthink.training.interchange.shared import Reduction
from orgthink.training.rows import PolicyRow


@dataclass(frozen=True, slots=True)
class Conditions:
    """Settings beside the rows. A target ignores those it has no field for."""

    reduction: Reduction
    """How the loss averages."""
    temperature: float
    """Temperature at which the trainer assumes that all rows were sampled."""
    version: int
    """Version of the newest weights."""


TARGETS: dict[str, Callable[[Sequence[PolicyRow], Conditions], Any]] = {
    "verl": lambda rows, on: verl.outputs(rows, version=on.version, temperature=on.temperature, reduction=on.reduction),
    "trl": lambda rows, on: trl.samples(rows, version=on.version, temperature=on.temperature, reduction=on.reduction),
    "tinker": lambda rows, on: tinker.data(rows, reduction=on.reduction),
}
"""Each makes a list with one item a row."""
