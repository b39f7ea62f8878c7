"""The trainers by name, each asked in the same way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from orgthink.interchange import tinker, trl, verl
from orgthink.interchange.shared import Reduction
from orgthink.training.rows import PolicyRow


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a target is told beside the rows; those that have no use of a part leave it alone."""

    reduction: Reduction
    """Of the loss."""
    temperature: float
    """At which the trainer takes all rows to be drawn."""
    version: int
    """Of the newest weights."""


TARGETS: dict[str, Callable[[Sequence[PolicyRow], Conditions], Any]] = {
    "verl": lambda rows, on: verl.outputs(rows, version=on.version, temperature=on.temperature, reduction=on.reduction),
    "trl": lambda rows, on: trl.samples(rows, version=on.version, temperature=on.temperature, reduction=on.reduction),
    "tinker": lambda rows, on: tinker.data(rows, reduction=on.reduction),
}
"""A list of items, one a row."""
