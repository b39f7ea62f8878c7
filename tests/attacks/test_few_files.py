"""A process that may open few files: each client is answered, and the log stays small."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from attacks.catalogue import Attack, each

pytest.importorskip("uvicorn")

from serve.test_serve import serving

from orgthink.serve import connections
from orgthink.util.terminal import MOST_LINES, clean_tracebacks

ANSWERED = "A server accepts no more connections than its process may have; further clients get the status 503."
LOG = "A log grows by few lines of one place in a minute."

CLIENTS = 400

SERVER = """
import asyncio, sys
from pathlib import Path
from orgthink.util.terminal import clean_tracebacks
from serve.test_serve import serving

async def main():
    clean_tracebacks()
    async with serving(Path(sys.argv[1]), most=64, seconds=0.01) as server:
        print(server.client.base_url.port, flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


@contextmanager
def small_process(folder: Path) -> Iterator[tuple[int, Path]]:
    """The port of a server that may open 128 files, and its log."""
    log = folder / "log"
    python = ["bash", "-c", 'ulimit -n 128; exec "$0" "$@"', sys.executable, "-c", SERVER, str(folder)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with log.open("wb") as errors:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
        process = subprocess.Popen(python, env=environment, **pipes)  # type: ignore[call-overload]
        try:
            yield int(process.stdout.readline()), log
        finally:
            process.communicate(timeout=60)
    assert process.returncode == 0, log.read_text()


BODY = b'{"model": "sequential-rule", "messages": [{"role": "user", "content": "How many?"}]}'
REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
)


async def status(port: int) -> int:
    """The status of an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(REQUEST)
    found = int((await reader.readline()).split()[1])
    assert found != 503 or b"too many connections" in await reader.read()
    writer.close()
    return found


@each(
    Attack("ulimit -n 128, 400 clients with a question, at once", ANSWERED, "all are answered, the log is short", 0),
    Attack("ulimit -n 128, 400 idle connections, then 40 clients", ANSWERED, "status 503, the log is short", CLIENTS),
)
async def test_few_files(attack: Attack, tmp_path: Path) -> None:
    with small_process(tmp_path) as (port, log):
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(attack.given)]
        async with asyncio.timeout(300):
            found = Counter(await asyncio.gather(*(status(port) for _ in range(40 if idle else CLIENTS))))
        for _, writer in idle:
            writer.close()
        answered = {503} if idle else {200, 429, 503}
        assert found.total() == (40 if idle else CLIENTS) and set(found) <= answered, found
        async with asyncio.timeout(300):
            while await status(port) != 200:  # all of them are gone
                await asyncio.sleep(0.1)
    assert log.stat().st_size < 100_000, log.read_text()[:2000]


async def test_a_server_accepts_again_after_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connections, "LINGER", 0.01)
    loop, left = asyncio.get_running_loop(), [1] * 100
    accept = loop.sock_accept

    async def failing(place: socket.socket) -> Any:
        if left and left.pop():
            raise OSError(errno.EMFILE, "Too many open files")
        return await accept(place)

    monkeypatch.setattr(loop, "sock_accept", failing)
    async with serving(tmp_path) as server, asyncio.timeout(30):
        while left:
            await asyncio.sleep(0.01)
        assert (await server.client.get("/healthz")).status_code == 200
    assert caplog.text.count("a connection is not accepted: [Errno 24] Too many open files") == 100


@each(Attack("a million lines of one place", LOG, f"{MOST_LINES} are printed, and a word about the others"))
def test_a_flood_of_a_log(attack: Attack, capsys: pytest.CaptureFixture[str]) -> None:
    clean_tracebacks()
    clean_tracebacks()
    assert logging.lastResort is not None
    now = int(logging.makeLogRecord({}).created) // 60 * 60 + 600.0  # a minute of its own
    for number in range(1000):
        place = {"pathname": "a.py", "lineno": 7, "created": now, "msg": "line %d", "args": (number,)}
        if logging.lastResort.filter(record := logging.makeLogRecord(place)):
            logging.lastResort.emit(record)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == MOST_LINES and lines[0] == "line 0"
    assert lines[-1] == f"line {MOST_LINES - 1} (more of these lines are not printed for a minute)"
    assert logging.lastResort.filter(logging.makeLogRecord(place | {"created": now + 60}))
