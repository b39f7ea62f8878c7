"""A programmatic teacher for `countdown-mini`: it scans pairs and writes down what it finds.

One line of a scan is a pair, its value, and what the value still needs to reach the target; `!` marks a
need that is among the remaining numbers, followed by the whole solution, so that answers and returns are
verbatim copies:

    scan * 2 * 9 18 + 11 ! ( 2 * 9 ) + 11 ; 2 * 11 22 + 7 ; …

Needs are listed in a canonical form only, so every solution of three numbers is found exactly once.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

OPERATORS = ("+", "-", "*", "/")
LARGEST = 15
"""Needs above the largest number of the task are not written."""


@dataclass(frozen=True, slots=True)
class Scan:
    """What one agent wrote about some operators."""

    text: str
    """The lines."""
    hits: tuple[str, ...]
    """Solutions in the order they were found."""


def scan(numbers: list[int], target: int, operators: list[str]) -> Scan:
    """All pairs under the operators. `numbers` are sorted and different."""
    lines: list[str] = []
    hits: list[str] = []
    for operator in operators:
        lines.append(f"scan {operator}")
        for low, high in combinations(numbers, 2):
            value = _apply(low, operator, high)
            if value is None:
                continue
            pair = f"{high} {operator} {low}" if operator in "-/" else f"{low} {operator} {high}"
            line = f"{pair} {value}"
            for form, need in _needs(low, operator, high, value, target):
                line += f" {form} {need}"
                if need in numbers and need not in (low, high):
                    hits.append(f"{need} - ( {pair} )" if form == "from" else f"( {pair} ) {form} {need}")
                    line += f" ! {hits[-1]}"
            lines.append(f"{line} ;")
    return Scan(" ".join(lines), tuple(hits))


def _apply(low: int, operator: str, high: int) -> int | None:
    """Value of the pair, larger number first; `None` if it is not a whole number or only multiplies by 1."""
    if operator == "+":
        return low + high
    if operator == "-":
        return high - low
    if low == 1:
        return None
    if operator == "*":
        return low * high
    return high // low if high % low == 0 else None


def _needs(low: int, operator: str, high: int, value: int, target: int) -> Iterator[tuple[str, int]]:
    """(form, number) that would complete the pair to the target, in canonical form.

    `+ z`, `- z`, `* z`, `/ z` act on the value, `from z` is z minus the value. The other orders of one
    solution, such as (y - x) + z for (y + z) - x, are left to the pair that names it first.
    """
    plus, minus, into = target - value, value - target, target + value
    if operator == "*" or operator == "/" or (operator == "+" and plus > high):
        if 1 <= plus <= LARGEST:
            yield "+", plus
    if 1 <= minus <= LARGEST and (operator != "-" or minus > low):
        yield "-", minus
    if into <= LARGEST and (operator != "-" or into > low):
        yield "from", into
    times, rest = divmod(target, value)
    if rest == 0 and 2 <= times <= LARGEST and operator != "/" and (operator != "*" or times > high):
        yield "*", times
    over, rest = divmod(value, target)
    if rest == 0 and 2 <= over <= LARGEST and operator in "+*":
        yield "/", over


