"""Scans: how the pocket models solve a countdown, and wrong answers to it.

A line of a scan has a pair, its value, the target, and the relations of the two by numbers up to 15. `!` marks a
relation by an unused number of the problem. The whole solution follows, so answers and returns are verbatim copies:

    scan * 2 * 9 18 29 up 11 ! ( 2 * 9 ) + 11 ; 2 * 11 22 29 up 7 ; …

Value and target are neighbours, so their relation is arithmetic on adjacent tokens.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from orgthink.grammar.actions import THOUGHT, Answer
from orgthink.grammar.asyncthink import DIALECT
from orgthink_pocket.tasks import arithmetic
from orgthink_pocket.tasks.steps import apply

OPERATORS = ("+", "-", "*", "/")
LARGEST = 15
"""Largest number of a relation: the task has no larger numbers."""
NO_SOLUTION = "none"
"""The answer without a solution."""
AWAY = 12
"""Largest distance of a wrong answer's value from the target."""
PATIENCE = 2_000
"""Draws after which a wrong answer may use other numbers: 1, 2, 3, 4 and 5 make nothing near 60 but 60."""

_OPERATION = {"up": "+", "down": "-", "into": "*", "by": "/"}
"""Relation → operator between value and number; `from` subtracts the value from the number."""


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
            value = _pair_value(low, operator, high)
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


def _pair_value(low: int, operator: str, high: int) -> int | None:
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


def answered(answer: str) -> str:
    """An answer in the tags of the grammar."""
    return DIALECT.render(Answer(f" {answer} "))


def solved(numbers: Sequence[int], target: int, operators: Sequence[str] = OPERATORS) -> tuple[str, str]:
    """A solver's text and its answer: it scans operators in order, up to the first solution."""
    lines, hit = first_hit(numbers, target, operators)
    answer = hit or NO_SOLUTION
    return f"{lines} {THOUGHT} {answered(answer)}", answer


def near_miss(numbers: Sequence[int], target: int, rng: random.Random) -> str:
    """A wrong answer: a value near the target, a number that is not given or used twice, or no solution."""
    if rng.random() < 0.1:
        return NO_SOLUTION
    strange = rng.random() < 0.25
    left = PATIENCE
    while True:
        left -= 1
        strange = strange or left < 0
        x, y, z = rng.sample(list(numbers), 3)
        if strange:
            x = rng.choice([y, rng.choice([n for n in range(1, LARGEST + 1) if n not in numbers])])
        first, second = rng.choice(OPERATORS), rng.choice(OPERATORS)
        expression = f"( {x} {first} {y} ) {second} {z}" if rng.random() < 0.8 else f"{z} {second} ( {x} {first} {y} )"
        found = worked(expression)
        if found is None:
            continue
        away = abs(found[-1] - target)
        if away <= AWAY and (strange or away > 0):
            return expression


def numbers_of(expression: str) -> list[str]:
    return [token for token in expression.split() if token.isdigit()]


def checked(used: Sequence[str], bad: int | None) -> str:
    """A line of checks of numbers, up to the bad one."""
    marks = [f"{token} ok" for token in used[:bad]]
    return " ".join(marks if bad is None else [*marks, f"{used[bad]} bad"])


def worked(expression: str) -> tuple[str, str, int] | None:
    """The two equations of an expression of three numbers, and its value; `None` if a value is 0 or not one of the
    models' integers."""
    tokens = expression.split()
    inner = tokens[1:4] if tokens[0] == "(" else tokens[3:6]
    value = _value(*inner)
    if value is None:
        return None
    outer = (str(value), *tokens[5:]) if tokens[0] == "(" else (*tokens[:2], str(value))
    result = _value(*outer)
    if result is None:
        return None
    return f"{' '.join(inner)} = {value}", f"{' '.join(outer)} = {result}", result


def _value(left: str, operator: str, right: str) -> int | None:
    """Value of an operation on positive integers."""
    if operator == "/":
        value, rest = divmod(int(left), int(right))
        return None if rest else value
    value = apply(left, operator, right)
    return value if 0 < value <= arithmetic.LARGEST else None
