"""Works an expression out step by step: one operation, its value, then the expression with the value inserted.

    3 + 4 = 7 ; 7 * 5 - 6 ; 7 * 5 = 35 ; 35 - 6 ; 35 - 6 = 29

Each step takes the leftmost operation of two numbers that precedence allows, so every line follows from the line before
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a solution."""

    terms: tuple[str, str, str]
    """Left operand, operator, right operand."""
    value: int
    """The written value of the operation, right or wrong."""
    rest: tuple[str, ...]
    """Tokens of the expression with the value inserted; the value alone after the last step."""


def steps(tokens: Sequence[str]) -> list[Operation]:
    """The steps of an expression, given as its tokens. ValueError for other tokens."""
    found: list[Operation] = []
    left = list(tokens)
    while len(left) > 1:
        at = _next(left)
        a, operator, b = left[at - 1 : at + 2]
        value = apply(a, operator, b)
        left = replaced(left, at, str(value))
        found.append(Operation((a, operator, b), value, tuple(left)))
    return found


def written(found: Sequence[Operation]) -> str:
    """The text of steps in a solution."""
    lines: list[str] = []
    for step in found:
        lines.append(f"{' '.join(step.terms)} = {step.value}")
        if len(step.rest) > 1:
            lines.append(" ".join(step.rest))
    return " ; ".join(lines)


def _next(tokens: list[str]) -> int:
    """Position of the leftmost operator that precedence allows."""
    padded = ["(", *tokens, ")"]
    for at in range(1, len(tokens)):
        before, left, operator, right, after = padded[at - 1 : at + 4]
        if not (operator in "+-*" and left.isdigit() and right.isdigit()):
            continue
        if before in "(+-" if operator == "*" else before == "(" and after != "*":
            return at
    raise ValueError(f"not an expression: {' '.join(tokens)}")


def apply(left: str, operator: str, right: str) -> int:
    """Value of an operation."""
    a, b = int(left), int(right)
    return a + b if operator == "+" else a - b if operator == "-" else a * b


def replaced(tokens: list[str], at: int, value: str) -> list[str]:
    """The expression with an operation replaced by its value, without the parentheses around it."""
    start, end = at - 1, at + 2
    if start > 0 and end < len(tokens) and tokens[start - 1] == "(" and tokens[end] == ")":
        start, end = start - 1, end + 1
    return [*tokens[:start], value, *tokens[end:]]
