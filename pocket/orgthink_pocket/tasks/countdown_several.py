"""Several countdowns at once: independent parts, which whoever has helpers can hand out side by side."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

from orgthink.episode import Grade, Problem
from orgthink.tasks.countdown import Countdown
from orgthink.tasks.task import Solution, Split
from orgthink_pocket.tasks.countdown import COUNTDOWN_MINI_SINGLE


class CountdownSeveral:
    """`count` countdowns with different targets; a solution of each is asked for, in any order."""

    def __init__(self, name: str, single: Countdown, count: int) -> None:
        """`single` is the task of one part: it asks for one solution."""
        self.name, self.single, self.count = name, single, count

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        """Parts in the order of their own task's stream; one whose target the problem already has is left out."""
        rng = random.Random(f"{self.name} {split} {seed}")
        parts = self.single.problems(split, rng.randrange(1 << 30))
        while True:
            chosen: dict[int, Problem] = {}
            while len(chosen) < self.count:
                part = next(parts)
                chosen.setdefault(part.data["target"], part)
            yield self.problem(list(chosen.values()))

    def problem(self, parts: list[Problem]) -> Problem:
        told = "\n".join(f"{i}. {part.text}" for i, part in enumerate(parts, 1))
        return Problem(
            id=f"{self.name}/{'+'.join(part.id.rpartition('/')[2] for part in parts)}",
            task=self.name,
            text=f"Solve {len(parts)} problems. Write one expression per line in the answer.\n{told}",
            required=len(parts),
            data={"parts": [part.data for part in parts]},
        )

    def grade(self, problem: Problem, answer: str) -> Grade:
        """How many parts are solved by the first expressions offered, as many as there are parts."""
        offered = [solution.text for solution in islice(self.solutions(problem, answer), problem.required)]
        parts = [self.single.problem(part["numbers"], part["target"]) for part in problem.data["parts"]]
        solved = sum(any(self.single.grade(part, text).all_correct for text in offered) for part in parts)
        return Grade(correct=solved, required=problem.required)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        """Two expressions are one solution if they use the same and are worth the same."""
        return self.single.solutions(problem, answer)


COUNTDOWN_MINI_FOUR = CountdownSeveral("countdown-mini-four", COUNTDOWN_MINI_SINGLE, 4)
