"""Small tasks for tests, drawn at once. They are named by the path of this file, as a task of yours could be."""

from __future__ import annotations

from pathlib import Path

from orgthink.tasks.countdown import Countdown, CountdownSize

_SIZE = {"largest": 15, "given": 5, "targets": (10, 60), "held_out": 10, "guaranteed": 3}

SMALL = Countdown("countdown-small", CountdownSize(**_SIZE))
ONE = Countdown("countdown-small-one", CountdownSize(**_SIZE, required=1), like="countdown-small")


class Three:
    """Has no more than three problems."""

    name = "three"

    def problems(self, split: str, seed: int):
        while True:
            yield from (SMALL.problem([1, 2, 3, 7, 9], target) for target in (18, 19, 20))


THREE = Three()

TASK, TASK_OF_ONE, TASK_OF_THREE = (f"{Path(__file__).resolve()}:{name}" for name in ("SMALL", "ONE", "THREE"))
