"""Deadlines: what ends together ends in one order, so that an episode is the same in every run."""

from __future__ import annotations

import asyncio

from orgthink.runtime.clock import run_virtual
from orgthink.runtime.deadline import end


def test_tasks_are_cancelled_in_the_order_in_which_they_are_given() -> None:
    cancelled: list[int] = []

    async def work(i: int) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.append(i)

    async def run() -> None:
        tasks = [asyncio.create_task(work(i)) for i in range(50)]
        await asyncio.sleep(1)
        await end(tasks, 1.0)

    run_virtual(run())
    assert cancelled == list(range(50))
