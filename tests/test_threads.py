"""Blocking work in threads, and the number of torch's threads."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import weakref
from contextlib import suppress

import pytest
import torch

from orgthink.util.threads import Threads, given_up, in_thread, set_threads, use_all_cores

HANGING = """
import asyncio, time
from orgthink.util.threads import in_thread

async def main():
    task = asyncio.create_task(in_thread(time.sleep, 1000))
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.wait([task])

asyncio.run(main())
"""


def test_the_program_ends_while_work_hangs() -> None:
    subprocess.run([sys.executable, "-c", HANGING], check=True, timeout=60)


async def test_cancelled_work_keeps_its_place_until_it_ends() -> None:
    threads, go = Threads(1), threading.Event()
    task = asyncio.create_task(threads.run(go.wait))
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.wait([task])
    other = asyncio.create_task(threads.run(int))
    await asyncio.sleep(0.05)
    assert not other.done()
    go.set()
    assert await asyncio.wait_for(other, 30) == 0


async def test_at_most_so_many_work_at_once() -> None:
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


async def test_errors_are_raised_in_the_caller() -> None:
    threads = Threads(1)
    for error, seen in ((ValueError("no"), ValueError), (StopIteration(), RuntimeError), (SystemExit(1), RuntimeError)):

        def fails(error: BaseException = error) -> None:
            raise error

        with pytest.raises(seen):
            await threads.run(fails)
    assert await threads.run(int) == 0


async def test_arguments_of_failed_work_are_released() -> None:
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
        await threads.run(int)
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


async def test_work_is_told_that_its_caller_was_cancelled() -> None:
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


@pytest.fixture
def cores(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)), raising=False)


@pytest.mark.parametrize(("spare", "threads"), [(0, "4"), (1, "3"), (4, "1")])
def test_cores_are_spared_and_waiting_threads_sleep(cores, spare, threads):
    set_threads(spare=spare)
    assert (os.environ["OMP_NUM_THREADS"], os.environ["OMP_WAIT_POLICY"]) == (threads, "passive")


def test_what_the_user_has_set_stays(cores, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    set_threads(spare=1)
    assert os.environ["OMP_NUM_THREADS"] == "7"


@pytest.mark.parametrize(("given", "asked"), [(None, [4]), ("2", [])])
def test_a_large_model_takes_the_spared_cores_too(cores, monkeypatch, given, asked):
    if given is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    set_threads(spare=1)
    chosen = []
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    use_all_cores()
    assert chosen == asked
