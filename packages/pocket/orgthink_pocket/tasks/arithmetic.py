"""`arithmetic-mini`: expressions whose intermediate values are all in the integers of the pocket models.

Step-by-step solutions often have small slips, which can be checked.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from typing import Any

from orgthink.record.episode import Grade, Problem
from orgthink.tasks.task import Solution, Split, Task, in_split

LARGEST = 399
"""Largest value of any part of an expression; none is below 0."""

OPERANDS = (4, 6)
"""Fewest and most operands."""

LARGEST_OPERAND = 20
"""Operands are in 1..20."""

_NUMBER = re.compile(r"[0-9]{1,9}")

Part = tuple[list[str], int, str]
"""Tokens of a sub-expression, its value, and its outermost operator; empty for a number."""


class Arithmetic(Task):
    """A fifth of the expressions, by a hash of their text, is held out for `test`."""

    name = "arithmetic-mini"

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        """Expressions in the order of a seeded generator."""
        rng = random.Random(f"{self.name} {split} {seed}")
        while True:
            part = expression(rng, rng.randint(*OPERANDS))
            if part is None:
                continue
            tokens, value = part
            problem = self.problem(" ".join(tokens), value)
            if in_split(problem.id, split):
                yield problem

    def problem(self, expression: str, value: int) -> Problem:
        """`expression` has spaces between its tokens."""
        return Problem(
            id=f"{self.name}/{expression.replace(' ', '')}",
            task=self.name,
            text=f"Compute {expression}.\nWrite only the number in the answer.",
            data={"expression": expression, "value": value},
        )

    def fits(self, data: Mapping[str, Any]) -> bool:
        return type(data.get("value")) is int

    def grade(self, problem: Problem, answer: str) -> Grade:
        """1 if the answer is the number and nothing else, else 0. Expressions are no answers."""
        return Grade(correct=int(_number(answer) == problem.data["value"]), required=problem.required)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        number, text = _number(answer), answer.strip()
        return [Solution(text if number is None else number, text)] if text else []


def _number(answer: str) -> int | None:
    text = answer.strip()
    return int(text) if _NUMBER.fullmatch(text) else None


def expression(rng: random.Random, operands: int) -> tuple[list[str], int] | None:
    """The tokens of a random expression and its value; `None` if the draw failed."""
    part = _expression(rng, operands)
    return None if part is None else part[:2]


def _expression(rng: random.Random, operands: int) -> Part | None:
    """A random expression without redundant parentheses; `None` if no operator fits some part of it."""
    if operands == 1:
        number = rng.randint(1, LARGEST_OPERAND)
        return [str(number)], number, ""
    first = rng.randint(1, operands - 1)
    left, right = _expression(rng, first), _expression(rng, operands - first)
    if left is None or right is None:
        return None
    values = {"+": left[1] + right[1], "-": left[1] - right[1], "*": left[1] * right[1]}
    fitting = [operator for operator, value in values.items() if 0 <= value <= LARGEST]
    if not fitting:
        return None
    operator = rng.choice(fitting)
    lefts = _enclosed(left) if operator == "*" and left[2] in ("+", "-") else left[0]
    rights = _enclosed(right) if right[2] in ("+", "-") or (operator == right[2] == "*") else right[0]
    return [*lefts, operator, *rights], values[operator], operator


def _enclosed(part: Part) -> list[str]:
    return ["(", *part[0], ")"]


ARITHMETIC_MINI = Arithmetic()
"""The value of a short arithmetic expression."""
