"""Validation of sizes."""

from __future__ import annotations

import math
from dataclasses import fields


def require_positive(sizes: object, *may_be_zero: str) -> None:
    """ValueError unless all numbers of a dataclass are finite and above 0; those in `may_be_zero` may be 0."""
    for item in fields(sizes):  # type: ignore[arg-type]  # its callers are dataclasses
        value = getattr(sizes, item.name)
        zero = value == 0 and item.name in may_be_zero
        if isinstance(value, int | float) and not (zero or 0 < value < math.inf):
            raise ValueError(f"{item.name} is {value}: it must be a number above 0")
