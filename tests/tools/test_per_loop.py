"""What is kept open for a loop is entered once and left by the task that entered it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from orgthink.tools.per_loop import PerLoop


class Door:
    """Counts who goes in and out."""

    def __init__(self, *, slow: float = 0.0, faults: int = 0) -> None:
        self.entered, self.left = list[asyncio.Task[None] | None](), list[asyncio.Task[None] | None]()
        self.slow, self.faults = slow, faults

    @asynccontextmanager
    async def open(self) -> AsyncIterator[object]:
        await asyncio.sleep(self.slow)
        self.entered.append(asyncio.current_task())
        if self.faults:
            self.faults -= 1
            raise ZeroDivisionError
        try:
            yield object()
        finally:
            await asyncio.sleep(0)
            self.left.append(asyncio.current_task())


def test_it_is_opened_once_a_loop_and_closed_with_it() -> None:
    door = Door()
    keeper = PerLoop(door.open)

    async def main() -> set[object]:
        things = set(await asyncio.gather(*(keeper.get() for _ in range(5))))
        assert things == {await keeper.get()}
        assert not door.left or len(door.left) < len(door.entered)
        return things

    first, second = asyncio.run(main()), asyncio.run(main())
    assert first != second and len(door.entered) == 2
    assert door.entered == door.left and not keeper._open


async def test_a_fault_is_told_to_all_who_wait_and_then_forgotten() -> None:
    door = Door(faults=1)
    keeper = PerLoop(door.open)
    found = await asyncio.gather(*(keeper.get() for _ in range(3)), return_exceptions=True)
    assert [type(one) for one in found] == [ZeroDivisionError] * 3
    assert await keeper.get() is await keeper.get()


async def test_who_gives_up_waiting_ends_it_for_nobody_else() -> None:
    keeper = PerLoop(Door(slow=0.05).open)
    impatient, patient = asyncio.create_task(keeper.get()), asyncio.create_task(keeper.get())
    await asyncio.sleep(0)
    impatient.cancel()
    assert await patient is await keeper.get()


async def test_opening_takes_no_longer_than_it_may() -> None:
    with pytest.raises(TimeoutError):
        await PerLoop(Door(slow=60).open, seconds=0.01).get()


async def test_what_is_dropped_is_closed_and_opened_anew() -> None:
    door = Door()
    keeper = PerLoop(door.open)
    first = await keeper.get()
    keeper.drop(first)
    second = await keeper.get()
    keeper.drop(first)  # somebody else noticed later
    assert first is not second and await keeper.get() is second
    await asyncio.sleep(0.01)
    assert door.left == door.entered[:1]


async def test_what_ends_by_itself_is_opened_anew() -> None:
    door = Door()
    keeper = PerLoop(door.open)
    first = await keeper.get()
    task = door.entered[0]
    assert task is not None
    task.cancel()
    await asyncio.wait({task})
    assert await keeper.get() is not first
