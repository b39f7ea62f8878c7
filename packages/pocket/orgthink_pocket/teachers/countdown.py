"""A programmatic teacher for `countdown-mini`: it scans pairs and writes down the solutions.

A line of a scan has a pair, its value, the target, and the relations of the two by numbers up to 15. `!` marks a
relation by an unused number of the problem. The whole solution follows, so answers and returns are verbatim copies:

    scan * 2 * 9 18 29 up 11 ! ( 2 * 9 ) + 11 ; 2 * 11 22 29 up 7 ; …

Value and target are neighbours, so their relation is arithmetic on adjacent tokens. `facts` drills this arithmetic for
every integer, because integers are single tokens and the model knows nothing about an integer without examples. No
*solution* of the lessons is for a held-out target; some problems without a solution have one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

OPERATORS = ("+", "-", "*", "/")
LARGEST = 15
"""Largest number of a relation: the task has no larger numbers."""

_OPERATION = {"up": "+", "down": "-", "into": "*", "by": "/"}
"""Relation → operator between value and number; `from` subtracts the value from the number."""

WORDS = ("facts", "scan", "up", "down", "from", "into", "by", "!")


@dataclass(frozen=True, slots=True)
class Scan:
    """A scan of some operators."""

    text: str
    """The lines."""
    hits: tuple[str, ...]
    """Solutions in order, each once."""


def scan(numbers: Sequence[int], target: int, operators: Sequence[str]) -> Scan:
    """All pairs of `numbers`, which are sorted and different, for each operator in turn."""
    lines: list[str] = []
    hits: list[str] = []
    for operator in operators:
        lines.append(f"scan {operator}")
        for low, high in combinations(numbers, 2):
            value = _apply(low, operator, high)
            if value is None:
                continue
            pair = f"{high} {operator} {low}" if operator in "-/" else f"{low} {operator} {high}"
            line = f"{pair} {value} {target}"
            for relation, number in related(value, target):
                line += f" {relation} {number}"
                free = number in numbers and number not in (low, high)
                if free and _canonical(relation, number, low, operator, high):
                    hits.append(_solution(pair, relation, number))
                    line += f" ! {hits[-1]}"
            lines.append(f"{line} ;")
    return Scan(" ".join(lines), tuple(hits))


def first_hit(numbers: Sequence[int], target: int, operators: Sequence[str]) -> tuple[str, str | None]:
    """A scan up to its first solution, and that solution; `None` if these operators have none."""
    lines: list[str] = []
    for operator in operators:
        found = scan(numbers, target, [operator])
        if found.hits:
            return " ".join([*lines, found.text.partition(f" ! {found.hits[0]}")[0], "!", found.hits[0]]), found.hits[0]
        lines.append(found.text)
    return " ".join(lines), None


def related(value: int, target: int) -> Iterator[tuple[str, int]]:
    """(relation, z) with z up to LARGEST: value `up` z, `down` z, z minus the value (`from`), `into` (times) z
    and `by` (divided by) z make the target."""
    candidates = [("up", target - value), ("down", value - target), ("from", target + value)]
    yield from ((relation, z) for relation, z in candidates if 1 <= z <= LARGEST)
    for relation, (z, rest) in (("into", divmod(target, value)), ("by", divmod(value, target))):
        if rest == 0 and 2 <= z <= LARGEST:
            yield relation, z


def facts(rng: random.Random, target: int, count: int, small: float = 0.0) -> list[tuple[str, str]]:
    """A drill about one integer, outside any problem: pairs of a value, and the integer with their relations.

    `small` is the additional share of values up to LARGEST.
    """
    drill = []
    for _ in range(count):
        if small and rng.random() < small:
            value = rng.randint(1, LARGEST)
        elif rng.random() < 0.7:
            value = rng.randint(1, 75)
        else:
            value = rng.randint(2, LARGEST) * rng.randint(2, LARGEST)
        relations = "".join(f" {relation} {z}" for relation, z in related(value, target))
        drill.append((f" {value}", f" {target}{relations} ;"))
    return drill


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


def _canonical(relation: str, z: int, low: int, operator: str, high: int) -> bool:
    """Whether this is the canonical order of equivalent solutions: (y + z) - x, not (y - x) + z."""
    match operator:
        case "+":
            return relation != "up" or z > high
        case "-":
            return relation != "up" and (relation not in ("down", "from") or z > low)
        case "*":
            return relation != "into" or z > high
        case _:
            return relation != "into" and relation != "by"


def _solution(pair: str, relation: str, z: int) -> str:
    if relation == "from":
        return f"{z} - ( {pair} )"
    return f"( {pair} ) {_OPERATION[relation]} {z}"
