"""`parts-mini`: several named values to compute, independent of each other or in a chain.

    copper = 3 + 4 * 2 ; silk = 9 - 2 ; tea = 5 * 3          independent
    copper = 3 + 4 * 2 ; silk = copper - 2 ; tea = 5 + silk  a chain

Independent parts can be divided among agents. A chain cannot.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orgthink.record.episode import Grade, Problem
from orgthink.tasks.task import Solution, Split, Task, in_split
from orgthink_pocket.tasks.arithmetic import LARGEST, expression
from orgthink_pocket.tasks.steps import steps

NAMES = ("copper", "zinc", "iron", "tin", "silver", "gold", "wool", "silk", "linen", "cotton", "wheat", "rice")
"""Names of the values: words of the pocket models' vocabulary."""
COUNT = (3, 6)
"""Fewest and most parts."""
OPERANDS = (2, 3)
"""Fewest and most operands of a part."""
CHAINED = 0.5
"""Share of chains."""


class PartsMini(Task):
    """Half of the problems are chains. A fifth of the problems, by a hash of their text, is held out for `test`."""

    name = "parts-mini"

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        rng = random.Random(f"{self.name} {split} {seed}")
        while True:
            problem = self._drawn(rng, rng.random() < CHAINED)
            if problem is not None and in_split(problem.id, split):
                yield problem

    def _drawn(self, rng: random.Random, chained: bool) -> Problem | None:
        """A problem; `None` if the draw failed."""
        names = rng.sample(NAMES, rng.randint(*COUNT))
        parts: list[tuple[str, str]] = []
        values: list[int] = []
        for name in names:
            found = expression(rng, rng.randint(*OPERANDS))
            if found is None:
                return None
            tokens = found[0]
            if chained and parts:
                tokens = _with(tokens, parts[-1][0], rng)
            value = evaluated(" ".join(tokens).replace(parts[-1][0], str(values[-1])) if parts else " ".join(tokens))
            if value is None:
                return None
            parts.append((name, " ".join(tokens)))
            values.append(value)
        return self.problem(parts, values, chained)

    def problem(self, parts: Sequence[tuple[str, str]], values: Sequence[int], chained: bool) -> Problem:
        """`parts` are names and expressions, with spaces between the tokens."""
        listed = " ; ".join(f"{name} = {expression}" for name, expression in parts)
        return Problem(
            id=f"parts-mini/{listed.replace(' ', '')}",
            task=self.name,
            text=f"Compute all values: {listed}.\nWrite only the numbers in the answer, in order, separated by ;",
            data={"parts": [list(part) for part in parts], "values": list(values), "chained": chained},
        )

    def fits(self, data: Mapping[str, Any]) -> bool:
        values = data.get("values")
        return isinstance(values, list) and all(type(value) is int for value in values)

    def grade(self, problem: Problem, answer: str) -> Grade:
        """1 if the answer has all numbers in order and nothing else, else 0."""
        return Grade(correct=int(_numbers(answer) == problem.data["values"]), required=problem.required)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        found, text = _numbers(answer), answer.strip()
        return [Solution(text if found is None else tuple(found), text)] if text else []


def _with(tokens: list[str], name: str, rng: random.Random) -> list[str]:
    """The tokens with a name in place of one of their numbers."""
    at = rng.choice([i for i, token in enumerate(tokens) if token.isdigit()])
    return [*tokens[:at], name, *tokens[at + 1 :]]


def evaluated(expression: str) -> int | None:
    """The value; `None` if a value on the way is negative or too large."""
    try:
        found = steps(expression.split())
    except ValueError:  # a negative number is no operand
        return None
    return found[-1].value if all(0 <= step.value <= LARGEST for step in found) else None


def _numbers(answer: str) -> list[int] | None:
    pieces = [piece.strip() for piece in answer.split(";")]
    return [int(piece) for piece in pieces] if all(re.fullmatch(r"[0-9]{1,9}", piece) for piece in pieces) else None


PARTS_MINI = PartsMini()
"""Several named values."""
