"""Programs under test, in a real sandbox and at a server: what they print, and how they end."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from orgthink_arena.judges import judge
from orgthink_arena.judges.judge import Judge, JudgedOutput, JudgeLimits, Submission

from orgthink.tools import bubblewrap, limits
from orgthink.util.errors import ToolError, UserError
from orgthink.util.threads import PROGRAMS, off_loop

LIMITS = JudgeLimits(seconds=30.0, memory_mb=256, output_mb=1)
ADDS = "print(sum(map(int, input().split())))"
METHOD = "class Solution:\n    def f(self, a, b):\n        print('debug')\n        return {}"


def outputs(source: str, *inputs: str, function: str | None = None, limits=LIMITS):
    with Judge(limits).outputs(Submission(source, function), inputs) as found:
        return list(found)


def test_what_is_printed():
    assert outputs(ADDS, "1 2", "3 4\n") == [JudgedOutput("3\n"), JudgedOutput("7\n")]


def test_what_is_returned():
    returned = METHOD.format("((a, b), {a: [b]}, {a}, None, 'é', True, 0.5)")
    found = outputs(returned, "1\n[2]", "3\n[4]", function="f")
    assert [json.loads(output.text)[1]["items"] for output in found] == [[[1, [[2]]]], [[3, [[4]]]]]
    assert json.loads(found[0].text)[:1] + json.loads(found[0].text)[2:] == [{}, {}, None, "é", True, 0.5]


def test_a_failure_is_the_last():
    first, second = outputs(ADDS, "1 2", "one", "3 4")
    assert (first.failure, second.text) == (None, "")
    assert second.failure is not None and second.failure.startswith("exit code 1")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("import sys\nprint('a')\nsys.exit(3)", "a\n"),
        ("print('a')\nexit('bye')", "a\n"),
        ("if __name__ == '__main__': print('a')", "a\n"),
        ("print(Counter('aa'), ceil(0.5), inf, gcd(4, 6))", "Counter({'a': 2}) 1 inf 2\n"),
        ("import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()", "late\n"),
        ("import sys\nprint('a', file=sys.stderr)", ""),
        ("from dataclasses import dataclass\n@dataclass\nclass P:\n    x: 'int'\nprint(P(1))", "P(x=1)\n"),
        ("f = lambda n: n and f(n - 1)\nprint(f(9000))", "0\n"),
        ("print(open(0).read())", "a\n"),
        ("print(len(str(10 ** 9000)))", "9001\n"),
    ],
)
def test_programs_run_as_they_expect(source, text):
    assert outputs(source, "a") == [JudgedOutput(text)]


def test_a_large_input_and_an_odd_one():
    assert outputs("print(len(input()), len(input()))", f"{'x' * 9_000_000}\n\ud800é\r\n") == [
        JudgedOutput("9000000 5\n")  # half a surrogate pair is three bytes that are no character
    ]


@pytest.mark.parametrize(
    ("source", "limits", "failure"),
    [
        ("import time\ntime.sleep(4)\nprint(1)", JudgeLimits(1.0), "stopped after 1 s"),
        ("print('x' * (1 << 20))", LIMITS, "stopped after 1 MiB of output"),
        ("import os, time\nfor _ in range(8):\n    if os.fork() == 0: break\nx = bytearray(b'1') * (100 << 20)\n"
         "time.sleep(60)", LIMITS, None),
        ("x = bytearray(1 << 40)", LIMITS, "exit code 1"),
        ("import os\nos.kill(os.getpid(), 11)", LIMITS, "ended by SIGSEGV"),
        ("import os\nos.kill(os.getppid(), 9)", LIMITS, "it ended its sandbox"),
    ],
)  # fmt: skip
def test_limits(source, limits, failure):
    *_, last = outputs(source, "1", "2", limits=limits)
    assert last.failure in (failure, "stopped: all its processes held more than 256 MiB"), last
    assert failure is not None or "256 MiB" in str(last.failure)


def test_who_wants_no_more_outputs_leaves_nothing():
    before, files = set(limits.children(os.getpid())), set(os.listdir("/proc/self/fd"))
    with Judge(LIMITS).outputs(Submission(ADDS), ["1 2"] * 99) as found:
        assert next(found).text == "3\n"
    assert set(limits.children(os.getpid())) == before
    assert set(os.listdir("/proc/self/fd")) == files


def test_no_more_than_so_many_at_once(monkeypatch):
    monkeypatch.setattr(judge, "_places", threading.BoundedSemaphore(2))
    at_once, most, lock, pair = 0, 0, threading.Lock(), threading.Barrier(2, timeout=60)

    def one(_: int) -> str:
        nonlocal at_once, most
        with Judge(LIMITS).outputs(Submission(ADDS), ["1 2"]) as found:
            with lock:
                at_once += 1
                most = max(most, at_once)
            pair.wait()  # two are in at once, however the threads are scheduled
            text = next(found).text
            with lock:
                at_once -= 1
        return text

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(one, range(6))) == ["3\n"] * 6
    assert most == 2


@pytest.fixture
def unchecked():
    bubblewrap.check.cache_clear()
    yield
    bubblewrap.check.cache_clear()


def test_without_a_sandbox_nothing_runs(unchecked, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="apt-get install bubblewrap"):
        bubblewrap.check()


def test_a_sandbox_that_does_not_start_is_no_wrong_answer(monkeypatch, tmp_path):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: out of namespaces' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(ToolError, match="did not start: bwrap: out of namespaces"),
        Judge(LIMITS).outputs(Submission(ADDS), ["1 2"]),
    ):
        pass


def test_a_test_that_cannot_be_sent_is_no_wrong_answer(monkeypatch):
    """As where others of the same user have too many descriptors on their way."""

    def refuses(*_: object) -> None:
        raise OSError(errno.ETOOMANYREFS, os.strerror(errno.ETOOMANYREFS))

    with Judge(LIMITS).outputs(Submission(ADDS), ["1 2", "3 4"]) as found:
        assert next(found) == JudgedOutput("3\n")
        monkeypatch.setattr(judge.socket, "send_fds", refuses)
        with pytest.raises(ToolError, match="Too many references"):
            next(found)


@pytest.mark.parametrize("waits", [False, True])
async def test_tests_that_nobody_waits_for_end(waits, monkeypatch):
    """Ctrl-C does not wait for slow programs, nor for those that wait for a place."""
    monkeypatch.setattr(judge, "_places", threading.BoundedSemaphore(1))
    before, began, errors = set(limits.children(os.getpid())), threading.Event(), list[Exception]()

    def work() -> None:
        began.set()
        try:
            outputs("while True: pass", "1", limits=JudgeLimits(90.0))
        except ToolError as error:
            errors.append(error)

    if waits:
        judge._places.acquire()
    task = asyncio.create_task(off_loop(PROGRAMS, work))
    while not began.is_set():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(30):
        while not errors:
            await asyncio.sleep(0.01)
    assert "given up" in str(errors[0])
    if waits:
        judge._places.release()
    with judge._place():
        assert set(limits.children(os.getpid())) == before
