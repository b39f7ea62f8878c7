"""A task for tests that a tiny model can learn: problems name their answers. `3 of 5` is answered by 3.

Its name is a path, so whoever reads a run folder finds it, other processes too.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

from orgthink.record.episode import Grade, Problem
from orgthink.tasks.task import Solution, Split, Task

LARGEST = 9
"""Numbers are from 0 to this."""
HELD_OUT = 9
"""Problems whose second number is this are of the test split."""


class Echo(Task):
    """Ninety problems for training, ten that are held out."""

    name = "echo"

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        rng = random.Random(f"{split} {seed}")
        while True:
            second = HELD_OUT if split == "test" else rng.randrange(HELD_OUT)
            yield self.problem(rng.randint(0, LARGEST), second)

    def problem(self, answer: int, second: int) -> Problem:
        return Problem(f"echo/{answer}-{second}", self.name, f"{answer} of {second}", data={"answer": answer})

    def grade(self, problem: Problem, answer: str) -> Grade:
        return Grade(int(answer.strip() == str(problem.data["answer"])), 1)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        return [Solution(number, number) for number in re.findall(r"\d+", answer)]


ECHO = Echo()
TASK = f"{Path(__file__).resolve()}:ECHO"
"""Names the task wherever a task is named."""
