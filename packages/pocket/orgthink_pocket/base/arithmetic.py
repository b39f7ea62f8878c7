"""Arithmetic lessons: short expressions, sums of groups, and named values that may depend on each other.

part 1 : 3 + 4 * 2 ; 4 * 2 = 8 ; 3 + 8 ; 3 + 8 = 11 ; ! 1 11 ; part 2 : … ; 11 + 17 ; 11 + 17 = 28
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from orgthink.record.episode import Problem
from orgthink.training.coldstart.structures import Step
from orgthink_pocket.base.family import Family, Thinking
from orgthink_pocket.tasks.steps import steps, written
from orgthink_pocket.tasks.sums import joined


def value(expression: str) -> str:
    """The value of an expression, as text."""
    found = steps(expression.split())
    return str(found[-1].value) if found else expression


def segment(name: str, expression: str) -> str:
    """The work on one named expression."""
    lines = [f"part {name} : {expression}", written(steps(expression.split())), f"! {name} {value(expression)} ;"]
    return " ; ".join(filter(None, lines))


class ShortFamily(Family):
    """`arithmetic-mini`: it is not divided."""

    def parts(self, problem: Problem) -> list[str]:
        return [problem.data["expression"]]

    def query(self, work: Thinking, parts: Sequence[str]) -> str:
        raise NotImplementedError("it is not divided")

    def think(self, work: Thinking, part: str) -> str:
        return written(steps(part.split()))

    def finish(self, work: Thinking) -> tuple[str, str]:
        return "", value(work.problem.data["expression"])


class SumsFamily(Family):
    """`sums-mini`: its groups are its parts, and their values a last expression."""

    def parts(self, problem: Problem) -> list[str]:
        return [str(i) for i in range(1, len(problem.data["groups"]) + 1)]

    def query(self, work: Thinking, parts: Sequence[str]) -> str:
        groups = work.problem.data["groups"]
        return " ; ".join(f"part {part} : {groups[int(part) - 1]}" for part in parts)

    def think(self, work: Thinking, part: str) -> str:
        group = work.problem.data["groups"][int(part) - 1]
        work.results.append((part, value(group)))
        return segment(part, group)

    def finish(self, work: Thinking) -> tuple[str, str]:
        values = dict(work.results)
        last = joined([values[part] for part in self.parts(work.problem)], work.problem.data["signs"])
        return " ; ".join(filter(None, [last, written(steps(last.split()))])), value(last)


class PartsFamily(Family):
    """`parts-mini`: named values."""

    def parts(self, problem: Problem) -> list[str]:
        return [name for name, _ in problem.data["parts"]]

    def query(self, work: Thinking, parts: Sequence[str]) -> str:
        return " ; ".join(f"part {part} : {self._known(work, part)}" for part in parts)

    def think(self, work: Thinking, part: str) -> str:
        expression = self._known(work, part)
        work.results.append((part, value(expression)))
        return segment(part, expression)

    def finish(self, work: Thinking) -> tuple[str, str]:
        values = dict(work.results)
        return "", " ; ".join(values[part] for part in self.parts(work.problem))

    def structure(self, rng: random.Random, problem: Problem, capacity: int) -> list[Step]:
        """In a chain every part needs the one before it: it is thought about, or forked and joined at once."""
        if not problem.data["chained"]:
            return super().structure(rng, problem, capacity)
        chain: list[Step] = []
        for part in self.parts(problem):
            forked = [Step("fork", "1", (part,)), Step("join", "1")]
            chain += forked if rng.random() < 0.5 else [Step("think", parts=(part,))]
        return chain

    def _known(self, work: Thinking, part: str) -> str:
        """The expression of a part with the known values filled in."""
        known = {**work.given, **dict(work.results)}
        expression = dict(work.problem.data["parts"])[part]
        return " ".join(known.get(token, token) for token in expression.split())
