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

from orgthink.util import threads
from orgthink.util.threads import PROGRAMS, given_up, off_loop, set_threads, use_all_cores

HANGING = """
import asyncio, time
from orgthink.util.threads import PROGRAMS, off_loop

async def main():
    task = asyncio.create_task(off_loop(PROGRAMS, time.sleep, 1000))
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.wait([task])

asyncio.run(main())
"""


def test_the_program_ends_while_work_hangs() -> None:
    subprocess.run([sys.executable, "-c", HANGING], check=True, timeout=60)


@pytest.fixture
def one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "WORKERS", 1)


async def test_cancelled_work_keeps_its_place_until_it_ends(one_worker: None) -> None:
    go = threading.Event()
    task = asyncio.create_task(off_loop(PROGRAMS, go.wait))
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.wait([task])
    other = asyncio.create_task(off_loop(PROGRAMS, int))
    await asyncio.sleep(0.05)
    assert not other.done()
    go.set()
    assert await asyncio.wait_for(other, 30) == 0


async def test_at_most_so_many_work_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "WORKERS", 3)
    most, working, lock = 0, 0, threading.Lock()
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

    assert await asyncio.gather(*(off_loop(PROGRAMS, work, number) for number in range(20))) == list(range(20))
    assert most == 3


async def test_errors_are_raised_in_the_caller(one_worker: None) -> None:
    for error, seen in ((ValueError("no"), ValueError), (StopIteration(), RuntimeError), (SystemExit(1), RuntimeError)):

        def fails(error: BaseException = error) -> None:
            raise error

        with pytest.raises(seen):
            await off_loop(PROGRAMS, fails)
    assert await off_loop(PROGRAMS, int) == 0


async def test_arguments_of_failed_work_are_released(one_worker: None) -> None:
    """A full collection of garbage is rare, and a grader's arguments may be large."""
    left = []

    class Large:
        pass

    def fails(large: Large) -> None:
        left.append(weakref.ref(large))
        raise ValueError("no")

    gc.disable()
    try:
        for _ in range(3):
            with suppress(ValueError):
                await off_loop(PROGRAMS, fails, Large())
        await off_loop(PROGRAMS, int)
        assert [reference() for reference in left] == [None] * 3
    finally:
        gc.enable()


async def test_a_thread_that_cannot_start_takes_no_place(one_worker: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="can't start"):
        patch.setattr(threading.Thread, "start", fails_to_start)
        await off_loop(PROGRAMS, int)
    assert await asyncio.wait_for(off_loop(PROGRAMS, int), 30) == 0


def fails_to_start(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


async def test_work_is_told_that_its_caller_was_cancelled() -> None:
    begun, noticed = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        while not given_up():
            pass
        noticed.set()

    task = asyncio.create_task(off_loop(PROGRAMS, work))
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
