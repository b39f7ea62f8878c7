"""The client of SandboxFusion, against a server on loopback that speaks its JSON, well or badly."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from loopback import Exchange

from orgthink.record.episode import Status
from orgthink.tools import sandbox_fusion
from orgthink.tools.bubblewrap import SandboxLimits
from orgthink.tools.sandbox_fusion import PREAMBLE, SandboxFusion, with_preamble
from orgthink.util.errors import Failure
from orgthink.util.http import RetryPolicy

Play = Callable[[Exchange], Awaitable[None]]

DEFAULTS = SandboxLimits()
QUICK = RetryPolicy(connect=5.0, attempts=3, first_delay=0.001)


@dataclass(slots=True)
class Server:
    """Plays in the order of the requests, the last one again and again."""

    plays: list[Play]
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    connections: int = 0
    """Made so far."""
    open: set[asyncio.Task[None] | None] = field(default_factory=set)
    """Connections that are still up."""
    readers: list[asyncio.StreamReader] = field(default_factory=list)
    """Of every connection: at their end once the client has closed it."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open.add(asyncio.current_task())
        self.readers.append(reader)
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                first, *lines = head.strip().split("\r\n")
                headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
                body = json.loads(await reader.readexactly(int(headers["content-length"])))
                self.bodies.append(body)
                self.paths.append(first)
                await self.plays[min(len(self.bodies), len(self.plays)) - 1](Exchange(body, headers, writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self.open.discard(asyncio.current_task())


@asynccontextmanager
async def fusion(*plays: Play, limits: SandboxLimits = DEFAULTS) -> AsyncIterator[tuple[SandboxFusion, Server]]:
    server = Server(list(plays))
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield SandboxFusion(server.url, limits, QUICK), server
    finally:
        listening.close()
        for task in list(server.open):  # kept for the next call
            if task is not None:
                task.cancel()


def runs(status: str = "Success", run_status: str = "Finished", **result: Any) -> Play:
    """An answer in SandboxFusion's own form."""

    async def play(exchange: Exchange) -> None:
        run = {"status": run_status, "execution_time": 0.01, "return_code": 0, "stdout": "", "stderr": "", **result}
        answer = {"status": status, "message": "", "compile_result": None, "run_result": run}
        await exchange.reply(200, answer | {"executor_pod_name": None, "files": {}})

    return play


def replies(status: int, body: Any, **headers: str) -> Play:
    """Anything."""

    async def play(exchange: Exchange) -> None:
        await exchange.reply(status, body, **headers)

    return play


async def silence(exchange: Exchange) -> None:
    await asyncio.sleep(3600)


async def cuts(exchange: Exchange) -> None:
    exchange.cut()
    await asyncio.sleep(0)


async def test_what_is_asked_for():
    async with fusion(runs(stdout="1\n")) as (_, server):
        result = await SandboxFusion(server.url + "/", DEFAULTS).run("  print(1)\n  print('\ud800')", "7\n\ud800")
    assert (result.text, result.status, result.error) == ("1\n", Status.OK, None)
    assert server.paths == ["POST /run_code HTTP/1.1"]
    (body,) = server.bodies
    assert body.pop("code") == f"{PREAMBLE}; print(1)\nprint('?')"
    limits = {"run_timeout": 30.0, "memory_limit_MB": 1024}
    assert body == {"language": "python", **limits, "stdin": "7\n?", "files": {}, "fetch_files": []}


async def test_limits_are_settings():
    async with fusion(runs(), limits=SandboxLimits(seconds=7.5, memory_mb=300)) as (runner, server):
        await runner.run("print(1)")
    assert (server.bodies[0]["run_timeout"], server.bodies[0]["memory_limit_MB"]) == (7.5, 300)


async def executes(exchange: Exchange) -> None:
    """Runs the program as the server does: the memory limit is also that of data and of the stack, which every new
    thread gets."""

    def limited() -> None:
        most = exchange.body["memory_limit_MB"] << 20
        for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_STACK):
            resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))

    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(exchange.body["code"])
        file.flush()
        pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
        started = await asyncio.create_subprocess_exec(sys.executable, file.name, preexec_fn=limited, **pipes)
        stdout, stderr = (part.decode() for part in await started.communicate())
    code = started.returncode
    await runs("Failed" if code else "Success", return_code=code, stdout=stdout, stderr=stderr)(exchange)


async def test_threads_of_a_program_start_within_the_limits_of_a_server():
    code = """
        from concurrent.futures import ThreadPoolExecutor
        print(sum(ThreadPoolExecutor(3).map(abs, range(-5, 0))))
        """
    async with fusion(executes) as (runner, _):
        result = await runner.run(code)
    assert (result.text, result.status) == ("15\n", Status.OK), result


async def test_numpy_and_sympy_work_within_the_limits_of_a_server():
    """A server that has these packages. On one processor numpy has no second thread, and the test cannot fail."""
    pytest.importorskip("sympy")
    code = """
        import numpy, os, sympy
        print(round(numpy.linalg.det(numpy.eye(300) * 1.01)), sympy.factorint(360), len(os.listdir("/proc/self/task")))
        """
    async with fusion(executes) as (runner, _):
        result = await runner.run(code)
    assert (result.text, result.status) == ("20 {2: 3, 3: 2, 5: 1} 1\n", Status.OK), result


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("x = 1\n1 / 0", 2),
        ("1 / 0", 1),
        ("# a comment\n1 / 0", 2),
        ("\n\ndef f():\n    1 / 0\nf()", 4),
        ('"""Says what it does."""\n1 / 0', 2),
        ("from __future__ import annotations\n1 / 0", 2),
        ("from __future__ import annotations; 1 / 0", 1),
        ("from __future__ import annotations  # why\nx = (1,\n2)\n1 / 0", 4),
        ("from __future__ import (\n    annotations,\n)\n1 / 0", 4),
        ('"""Doc."""\nfrom __future__ import annotations\nfrom __future__ import division\nif 1:\n    1 / 0', 5),
        ("for x in [0]:\n    1 / x", 3),
        ("@print\ndef f(): pass\n1 / 0", 4),
        ("async def f(): pass\n1 / 0", 3),
        ("formed = 1\nif formed: 1 / 0", 2),
    ],
)
def test_a_program_with_a_preamble_keeps_its_lines(code: str, line: int, monkeypatch: pytest.MonkeyPatch):
    """A first line that begins a block moves down by one."""
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    before = threading.stack_size()
    with pytest.raises(ZeroDivisionError) as raised:
        exec(compile(with_preamble(code), "program", "exec", dont_inherit=True), {})
    assert raised.traceback[-1].lineno + 1 == line and os.environ["OMP_NUM_THREADS"] == "1"
    assert threading.stack_size(before) == 1 << 23


@pytest.mark.parametrize(
    ("play", "text", "status", "error"),
    [
        (runs(stdout="a\n", stderr="warning\n"), "a\nwarning\n", Status.OK, None),
        (runs(stdout=None, stderr=None), "", Status.OK, None),
        (runs(stdout="ü\0\ud800 🙂"), "ü\0? 🙂", Status.OK, None),
        (
            runs("Failed", return_code=1, stdout="a\n", stderr="ValueError: b\n"),
            "a\nValueError: b\n",
            Status.ERROR,
            "exit code 1 (ValueError: b)",
        ),
        (runs("Failed", "Error", return_code=None), "", Status.ERROR, "ended without an exit code"),
        (runs("Failed", return_code=-9), "", Status.ERROR, "ended by SIGKILL"),
        (runs("Failed", return_code=139), "", Status.ERROR, "ended by SIGSEGV"),
        (
            runs("Failed", "TimeLimitExceeded", return_code=None, stdout="so far"),
            "so far",
            Status.TIMEOUT,
            "stopped after 30 s",
        ),
        (runs(stdout="x" * 70_000), "x" * 65_536, Status.ERROR, "cut after 65536 bytes of output"),
    ],
)
async def test_how_a_program_went(play, text, status, error):
    async with fusion(play) as (runner, _):
        result = await runner.run("…")
    assert (result.text, result.status, result.error) == (text, status, error)


@pytest.mark.parametrize(
    ("play", "said"),
    [
        (replies(200, {"status": "SandboxError", "message": "no more\nrooms", "run_result": None}), "no more rooms"),
        (replies(200, {"status": "Failed", "message": "", "run_result": None}), "Failed"),
        (replies(200, "<html>hello</html>"), "sent an invalid result"),
        (replies(200, "[" * 200_000), "sent an invalid result"),
        (replies(200, ""), "sent an invalid result"),
        (replies(200, [1]), "sent an invalid result"),
        (replies(200, {"status": "Wonderful"}), "sent an invalid result"),
        (replies(200, {"status": "Success", "run_result": {"status": "Finished", "stdout": 3}}), "an invalid result"),
        (runs(stdout="x" * 9_000_000), "sent an answer of more than 8388608 bytes"),
        (replies(404, "no such\npath"), "answered 404: no such path"),
        (replies(422, {"detail": "language"}), "answered 422"),
        (replies(429, "later", Retry_After="3600"), "answered 429: later"),
    ],
)
async def test_a_server_that_cannot_is_a_failure_at_once(play, said):
    async with fusion(play) as (runner, server):
        with pytest.raises(Failure) as raised:
            await runner.run("print(1)")
    assert said in str(raised.value)
    assert len(server.bodies) == 1


@pytest.mark.parametrize("trouble", [replies(500, "oh"), replies(503, "", Retry_After="0"), replies(429, ""), cuts])
async def test_trouble_that_may_pass_is_waited_out(trouble):
    async with fusion(trouble, trouble, runs(stdout="1")) as (runner, server):
        assert (await runner.run("print(1)")).text == "1"
    assert len(server.bodies) == 3


@pytest.mark.parametrize(("trouble", "said"), [(replies(500, "oh"), "answered 500: oh"), (cuts, r"127\.0\.0\.1")])
async def test_trouble_that_stays_is_a_failure(trouble, said):
    async with fusion(trouble) as (runner, server):
        with pytest.raises(Failure, match=said):
            await runner.run("print(1)")
    assert len(server.bodies) == QUICK.attempts


async def test_a_silent_server_is_a_timeout(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sandbox_fusion, "GRACE", 0.2)
    async with fusion(silence, limits=SandboxLimits(seconds=0.1)) as (runner, server):
        result = await runner.run("print(1)")
        assert (result.text, result.status) == ("", Status.TIMEOUT)
        assert result.error == "no answer in 0.3 s"
        assert len(server.bodies) == 1
        for task in server.open:
            task and task.cancel()


async def test_nobody_there_is_a_failure():
    async with fusion() as (runner, _):
        pass
    with pytest.raises(Failure, match=r"127\.0\.0\.1"):
        await runner.run("print(1)")


async def test_a_cancelled_call_closes_its_connection():
    async with fusion(silence) as (runner, server):
        call = asyncio.create_task(runner.run("print(1)"))
        while not server.bodies:
            await asyncio.sleep(0.001)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        async with asyncio.timeout(5):
            while not server.readers[0].at_eof():
                await asyncio.sleep(0.001)
