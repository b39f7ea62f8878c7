"""Curves of a run: the numbers of its metrics over its steps."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

POINTS = 400
"""Most points of a curve."""

Curves = Mapping[str, Sequence[tuple[float, float]]]
"""Step and value of every metric, by its name on the page."""


def numbers(values: Mapping[str, Any], between: str = "/", prefix: str = "") -> Iterator[tuple[str, float]]:
    """Names and values of all finite numbers of a line of metrics.jsonl. A number in an inner object is `NAME/NAME`."""
    for name, value in values.items():
        if isinstance(value, dict) and not prefix:
            yield from numbers(value, between, name + between)
        elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max:
            yield prefix + name, float(value)


def named(line: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a line by their names on the page, such as `format errors: no answer`."""
    return {name.replace("_", " "): value for name, value in numbers(line, ": ")}


def curves(lines: Iterable[Mapping[str, float]]) -> Curves:
    """At most `POINTS` points of each metric, the newest included. `lines` are those of `named`."""
    every = list(enumerate(lines, 1))
    stride = max(1, math.ceil(len(every) / POINTS))
    found: dict[str, list[tuple[float, float]]] = {}
    for number, line in every[(len(every) - 1) % stride :: stride]:
        for name, value in line.items():
            if name != "step":
                found.setdefault(name, []).append((line.get("step", number), value))
    return found
