"""`sums-mini`: sums of 8 to 12 operands as trees of two levels: groups in parentheses, added or subtracted.

    ( 3 + 4 * 5 ) + ( 12 - 7 + 2 ) - ( 9 * 2 )

Every group can be worked out by itself, and the values then make a short sum.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from orgthink.record.episode import Problem
from orgthink.tasks.task import Split, in_split
from orgthink_pocket.tasks.arithmetic import LARGEST, Arithmetic, expression

OPERANDS = (8, 12)
"""Fewest and most operands."""
IN_GROUP = (2, 4)
"""Fewest and most operands of a group."""


class SumsMini(Arithmetic):
    """A fifth of the sums, by a hash of their text, is held out for `test`."""

    name = "sums-mini"

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        rng = random.Random(f"{self.name} {split} {seed}")
        while True:
            found = _drawn(rng)
            if found is not None and in_split((problem := self.sum(*found)).id, split):
                yield problem

    def sum(self, groups: Sequence[str], signs: Sequence[str], value: int) -> Problem:
        """`signs` stand between the groups."""
        problem = self.problem(joined([f"( {group} )" for group in groups], signs), value)
        data = {**problem.data, "groups": list(groups), "signs": list(signs)}
        return Problem(problem.id, problem.task, problem.text, data=data)


def joined(parts: Sequence[str], signs: Sequence[str]) -> str:
    """The parts with the signs between them."""
    return " ".join([parts[0], *(f"{sign} {part}" for sign, part in zip(signs, parts[1:], strict=True))])


def _drawn(rng: random.Random) -> tuple[list[str], list[str], int] | None:
    """Groups, signs and the value of a sum; `None` if the draw failed."""
    sizes = [rng.randint(*IN_GROUP)]
    wanted = rng.randint(*OPERANDS)
    while sum(sizes) < wanted:
        sizes.append(min(rng.randint(*IN_GROUP), wanted - sum(sizes)))
    found = [expression(rng, size) for size in sizes]
    if sizes[-1] < IN_GROUP[0] or None in found:
        return None
    groups = [group for group in found if group is not None]
    value, signs = groups[0][1], list[str]()
    for _, other in groups[1:]:
        fitting = [sign for sign, made in (("+", value + other), ("-", value - other)) if 0 <= made <= LARGEST]
        if not fitting:
            return None
        signs.append(rng.choice(fitting))
        value += other if signs[-1] == "+" else -other
    return [" ".join(tokens) for tokens, _ in groups], signs, value


SUMS_MINI = SumsMini()
"""The value of a sum of groups."""
