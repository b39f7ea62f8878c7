"""A task in one file: problems and an exact grader.

orgthink eval --task examples/task.py:Sums --organizations sequential --n 20 --url http://localhost:8000/v1
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from orgthink import Grade, Problem
from orgthink.tasks import Split, Task


class Sums(Task):
    """Sums of two numbers. No sum of `test` occurs in `train`."""

    name = "sums"

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        """An endless stream, the same for the same split and seed."""
        rng = random.Random(f"{split} {seed}")
        while True:
            a, b = rng.randint(10, 99), rng.randint(10, 99)
            if ((a + b) % 5 == 0) == (split == "test"):
                yield Problem(f"sums/{a}+{b}", self.name, f"What is {a} + {b}?", data={"answer": a + b})

    def grade(self, problem: Problem, answer: str) -> Grade:
        """The last number of the answer counts."""
        numbers = re.findall(r"(?<!\d)-?\d{1,9}(?!\d)", answer)
        return Grade(int(numbers[-1:] == [str(problem.data["answer"])]), problem.required)
