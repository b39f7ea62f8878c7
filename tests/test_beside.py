"""Blocking work beside an event loop: as many threads as allowed, and the program ends without those that hang."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import weakref
from contextlib import suppress

import pytest

from orgthink.util.beside import Threads, given_up, in_thread

PROGRAM = """
import asyncio, threading, time
from orgthink import beside

begun = threading.Event()

def work():
    begun.set()
    {work}

async def main():
    task = asyncio.create_task(beside.in_thread(work))
    while not begun.is_set():
        await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.wait([task])

beside.LAST_SECONDS = {seconds}
asyncio.run(main())
"""


def ended(work: str, seconds: float) -> str:
    """What a program prints that is cancelled while the work is under way."""
    command = [sys.executable, "-c", PROGRAM.format(work=work, seconds=seconds)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_end_of_the_program_waits_for_what_is_under_way() -> None:
    notice = "while not beside.given_up(): pass\n    time.sleep(0.2)\n    print('cleaned up')"
    assert ended(notice, 30) == "cleaned up\n"


def test_but_not_for_ever() -> None:
    assert ended("while True: time.sleep(0.01)", 0.1) == ""


async def test_so_many_work_at_once_and_the_others_wait() -> None:
    threads, most, working, lock = Threads(3), 0, 0, threading.Lock()
    all_three = threading.Barrier(3, timeout=30)

    def work(number: int) -> int:
        nonlocal most, working
        with lock:
            working += 1
            most = max(most, working)
        if number < 3:
            all_three.wait()
        with lock:
            working -= 1
        return number

    assert await asyncio.gather(*(threads.run(work, number) for number in range(20))) == list(range(20))
    assert most == 3


async def test_an_error_is_raised_where_the_work_is_waited_for_and_the_thread_goes_on() -> None:
    threads = Threads(1)
    for error, seen in ((ValueError("no"), ValueError), (StopIteration(), RuntimeError), (SystemExit(1), RuntimeError)):

        def fails(error: BaseException = error) -> None:
            raise error

        with pytest.raises(seen):
            await threads.run(fails)
    first, second = await threads.run(threading.get_ident), await threads.run(threading.get_ident)
    assert first == second


async def test_what_has_failed_is_forgotten_at_once() -> None:
    """A full collection of garbage is rare, and a grader's arguments may be large."""
    threads, left = Threads(1), []

    class Large:
        pass

    def fails(large: Large) -> None:
        left.append(weakref.ref(large))
        raise ValueError("no")

    gc.disable()
    try:
        for _ in range(3):
            with suppress(ValueError):
                await threads.run(fails, Large())
        await threads.run(int)  # the thread has let the last one go
        assert [reference() for reference in left] == [None] * 3
    finally:
        gc.enable()


async def test_a_thread_that_cannot_start_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = Threads(1)
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="can't start"):
        patch.setattr(threading.Thread, "start", fails_to_start)
        await threads.run(int)
    assert await asyncio.wait_for(threads.run(int), 30) == 0


def fails_to_start(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


async def test_work_learns_that_nobody_waits_any_more() -> None:
    begun, noticed = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        while not given_up():
            pass
        noticed.set()

    task = asyncio.create_task(in_thread(work))
    while not begun.is_set():
        await asyncio.sleep(0.001)
    assert not noticed.is_set()
    task.cancel()
    await asyncio.wait([task])
    assert await asyncio.to_thread(noticed.wait, 30)


def test_the_threads_of_a_loop_end_with_it() -> None:
    threads = Threads(2)
    seen: list[threading.Thread] = []
    asyncio.run(threads.run(lambda: seen.append(threading.current_thread())))
    gc.collect()
    seen[0].join(30)
    assert not seen[0].is_alive()
