"""A programmatic teacher for `arithmetic-mini`: one operation, its value, the expression with the value in its place.

    3 + 4 = 7 ; 7 * 5 - 6 ; 7 * 5 = 35 ; 35 - 6 ; 35 - 6 = 29

Always the leftmost operation whose operands are numbers and whose turn it is, so that every step follows from the
line before it.
"""

from __future__ import annotations

from typing import Any

WORDS = ("arithmetic",)
"""Words of the problems and the thinking."""


def solve(problem_data: dict[str, Any]) -> tuple[str, str]:
    """(thinking, answer) for the data of a problem."""
    tokens = problem_data["expression"].split()
    lines: list[str] = []
    while len(tokens) > 1:
        at = _next(tokens)
        operation = tokens[at - 1 : at + 2]
        value = _value(*operation)
        lines.append(f"{' '.join(operation)} = {value}")
        tokens = _replaced(tokens, at, str(value))
        if len(tokens) > 1:
            lines.append(" ".join(tokens))
    return " ; ".join(lines), tokens[0]


def _next(tokens: list[str]) -> int:
    """Position of the leftmost operator that may act now."""
    padded = ["(", *tokens, ")"]
    for at in range(1, len(tokens)):
        before, left, operator, right, after = padded[at - 1 : at + 4]
        if not (operator in "+-*" and left.isdigit() and right.isdigit()):
            continue
        if before in "(+-" if operator == "*" else before == "(" and after != "*":
            return at
    raise ValueError(f"no expression: {' '.join(tokens)}")


def _value(left: str, operator: str, right: str) -> int:
    a, b = int(left), int(right)
    return a + b if operator == "+" else a - b if operator == "-" else a * b


def _replaced(tokens: list[str], at: int, value: str) -> list[str]:
    """The expression with an operation replaced by its value, and the parentheses around it gone."""
    start, end = at - 1, at + 2
    if start > 0 and end < len(tokens) and tokens[start - 1] == "(" and tokens[end] == ")":
        start, end = start - 1, end + 1
    return [*tokens[:start], value, *tokens[end:]]
