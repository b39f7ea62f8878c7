"""Small tasks for tests, drawn at once. They are named by the path of this file, as a task of yours could be."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from orgthink.record.episode import Grade, Problem
from orgthink.tasks.countdown import Countdown, CountdownSize
from orgthink.tasks.task import Solution, Split, Task

_SIZE = {"largest": 15, "given": 5, "targets": (10, 60), "held_out": 10, "guaranteed": 3}

SMALL = Countdown("countdown-small", CountdownSize(**_SIZE))
ONE = Countdown("countdown-small-one", CountdownSize(**_SIZE, required=1), like="countdown-small")


class Sums(Task):
    """What two numbers are together; even first numbers are held out for `test`."""

    name = "sums"

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        rng = random.Random(f"{self.name} {split} {seed}")
        while True:
            a, b = rng.randrange(split == "train", 400, 2), rng.randrange(400)
            yield self.problem(f"{a} + {b}", a + b)

    def problem(self, expression: str, value: int) -> Problem:
        data = {"expression": expression, "value": value}
        return Problem(f"{self.name}/{expression}", self.name, f"sum {expression}", data=data)

    def grade(self, problem: Problem, answer: str) -> Grade:
        """1 if the answer is the number and nothing else, else 0."""
        return Grade(correct=int(answer.strip() == str(problem.data["value"])), required=problem.required)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        text = answer.strip()
        return [Solution(text, text)] if text else []


class Three(Sums):
    """Has no more than three problems."""

    name = "three"

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        while True:
            yield from (self.problem(f"1 + {b}", 1 + b) for b in range(3))


SUMS, THREE = Sums(), Three()

TASK, TASK_OF_ONE, TASK_OF_SUMS, TASK_OF_THREE = (
    f"{Path(__file__).resolve()}:{name}" for name in ("SMALL", "ONE", "SUMS", "THREE")
)
