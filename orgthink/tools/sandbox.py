"""Where programs that a model wrote run: alone, for a few seconds, with nothing of this machine in sight."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import IO

from orgthink.record.episode import Status
from orgthink.runtime.agent import Result
from orgthink.tools import bubblewrap, limits
from orgthink.tools.limits import Cgroup
from orgthink.tools.per_loop import PerLoop
from orgthink.tools.python import CodeRunner, ending, unindented
from orgthink.util.concurrency import place
from orgthink.util.errors import ToolError, UserError
from orgthink.util.terminal import excerpt

__all__ = ["Bubblewrap", "CodeRunner", "runner_named"]

LOOK = 0.1
"""Seconds between two looks at the memory of a program."""
KERNEL_MB = 64
"""MiB of a sandbox's control group that are not the program's: what the kernel keeps for its processes and mounts."""
PATIENCE = 10.0
"""Seconds for the kernel to clear away what was killed, before the wait for it blocks."""


class _Stop(Enum):
    """Why a program was stopped."""

    TIME = auto()
    OUTPUT = auto()
    MEMORY = auto()


def runner_named(name: str) -> CodeRunner:
    """`bubblewrap`, or the URL of a SandboxFusion server; UserError for anything else, or if it cannot work here."""
    if name == "bubblewrap":
        return Bubblewrap()
    if name.startswith(("http://", "https://")):
        from orgthink.tools.sandbox_fusion import SandboxFusion

        return SandboxFusion(name)
    raise UserError(f"unknown sandbox {name!r}: bubblewrap, or the http:// URL of a SandboxFusion server")


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """Namespaces of its own for every program, made by bubblewrap. UserError where this machine cannot make them."""

    seconds: float = 5.0
    """Wall clock of a program, the start of its room included."""
    memory_mb: int = 256
    """MiB of memory, for each process and for all of them."""
    processes: int = 16
    """Processes and threads at once."""
    output_bytes: int = 64 * 1024
    """Bytes of output. Whoever writes more is stopped."""
    file_mb: int = 16
    """MiB of all files together."""
    max_parallel: int = 2 * (os.cpu_count() or 1)
    """Programs that run at once in an event loop; others wait, and their seconds have not begun."""
    _places: PerLoop[tuple[asyncio.Semaphore, asyncio.Lock]] = field(init=False, repr=False, compare=False)
    """For programs; and a turn for each start and look, which take milliseconds: the loop goes on in between."""

    def __post_init__(self) -> None:
        bubblewrap.check()
        object.__setattr__(self, "_places", PerLoop(self._new_places))

    @asynccontextmanager
    async def _new_places(self) -> AsyncIterator[tuple[asyncio.Semaphore, asyncio.Lock]]:
        yield asyncio.Semaphore(self.max_parallel), asyncio.Lock()

    async def run(self, code: str, stdin: str = "") -> Result:
        """Run it on that input. Leading indentation that all lines share is removed first; nothing is left behind
        afterwards."""
        places, turn = await self._places.get()
        async with place(places):
            deadline = asyncio.get_running_loop().time() + self.seconds
            with limits.limited(self.memory_mb + self.file_mb + KERNEL_MB << 20, self.processes) as group:
                return await self._run(code, stdin, group, deadline, turn)

    async def _run(self, code: str, stdin: str, group: Cgroup | None, deadline: float, turn: asyncio.Lock) -> Result:
        output = bytearray()
        async with turn:
            await asyncio.sleep(0)
            process = self._start(code, stdin, group)
        try:
            stopped = await self._watch(process, group, deadline, output, turn)
            if stopped:
                limits.end(process)
            await _ended(process)
        finally:
            if process.poll() is None:  # cancelled
                limits.end(process)
            process.wait()
            _pipe(process).close()
        if group is not None and group.out_of_memory():  # perhaps after the last look
            stopped = _Stop.MEMORY
        return self._result(output, process.returncode, stopped)

    def _start(self, code: str, stdin: str, group: Cgroup | None) -> subprocess.Popen[bytes]:
        most = bubblewrap.SandboxLimits(self.seconds, self.memory_mb, self.processes, self.file_mb)
        try:
            with bubblewrap.files(unindented(code).encode(errors="surrogatepass")) as files, _given(stdin) as given:
                return subprocess.Popen(
                    limits.entered(group, bubblewrap.command(most, *files)),
                    env={},
                    pass_fds=files,
                    stdin=given,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    bufsize=0,
                    start_new_session=True,
                )
        except OSError as error:
            raise ToolError(f"the sandbox did not start: {error}") from error

    async def _watch(
        self,
        process: subprocess.Popen[bytes],
        group: Cgroup | None,
        deadline: float,
        output: bytearray,
        turn: asyncio.Lock,
    ) -> _Stop | None:
        """Read until nobody can write any more, or a limit is passed; says which."""
        now = asyncio.get_running_loop().time
        look, pipe = now() + LOOK, _pipe(process).fileno()
        os.set_blocking(pipe, False)
        while now() < deadline:
            if now() >= look:
                async with turn:
                    await asyncio.sleep(0)
                    if self._too_much(process.pid, group):
                        return _Stop.MEMORY
                look = now() + LOOK
            if not await _readable(pipe, min(deadline, look) - now()):
                continue
            part = os.read(pipe, 1 << 16)
            if not part:
                return None
            output += part
            if len(output) > self.output_bytes:
                return _Stop.OUTPUT
        return _Stop.TIME

    def _too_much(self, pid: int, group: Cgroup | None) -> bool:
        if group is not None:
            return group.out_of_memory()
        return limits.memory(pid) + limits.hidden(pid) > self.memory_mb << 20

    def _result(self, output: bytearray, code: int, stopped: _Stop | None) -> Result:
        text = output[: self.output_bytes].decode(errors="replace")
        if stopped is _Stop.TIME:
            return Result(text, Status.TIMEOUT, error=f"stopped after {self.seconds:g} s")
        if stopped is _Stop.OUTPUT:
            return Result(text, Status.ERROR, error=f"stopped, and cut, after {self.output_bytes} bytes of output")
        if stopped is _Stop.MEMORY:
            return Result(text, Status.ERROR, error=f"stopped: all its processes held more than {self.memory_mb} MiB")
        if code == 0:
            return Result(text)
        if text.startswith(bubblewrap.COMPLAINTS):
            raise ToolError(f"the sandbox did not start: {excerpt(text, 200)}")
        return Result(text, Status.ERROR, error=ending(code, text))


def _given(stdin: str) -> AbstractContextManager[int]:
    """A descriptor with the input."""
    return bubblewrap.readable(stdin.encode(errors="surrogatepass")) if stdin else nullcontext(subprocess.DEVNULL)


async def _ended(process: subprocess.Popen[bytes]) -> None:
    """Wait for its end, without blocking the others."""
    handle = os.pidfd_open(process.pid)
    try:
        await _readable(handle, PATIENCE)
    finally:
        os.close(handle)


async def _readable(descriptor: int, seconds: float) -> bool:
    """Whether there is something to read within so many seconds."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        async with asyncio.timeout(seconds):
            await ready.wait()
        return True
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(descriptor)


def _pipe(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdout is not None
    return process.stdout
