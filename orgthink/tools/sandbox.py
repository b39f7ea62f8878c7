"""Runs Python programs that a model wrote in a sandbox: no files, no network, limited time, memory and output."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field

from orgthink.record.episode import Status
from orgthink.runtime.agent import Result
from orgthink.tools import bubblewrap, limits
from orgthink.tools.bubblewrap import STARTED, SandboxLimits
from orgthink.tools.limits import Cgroup
from orgthink.tools.per_loop import PerLoop
from orgthink.tools.python import CodeRunner, ending, unindented
from orgthink.util.concurrency import place
from orgthink.util.errors import ToolError, UserError, explained
from orgthink.util.terminal import excerpt

__all__ = ["Bubblewrap", "CodeRunner", "runner_named"]

KERNEL_MB = 64
"""MiB that a sandbox's control group needs for the kernel's own data."""


def runner_named(name: str, limits: SandboxLimits) -> CodeRunner:
    """`bubblewrap`, or the URL of a SandboxFusion server. UserError for another name, or if it does not work here."""
    if name == "bubblewrap":
        return Bubblewrap(limits.seconds, limits.memory_mb, limits.processes, limits.file_mb, limits.packages)
    if name.startswith(("http://", "https://")):
        from orgthink.tools.sandbox_fusion import SandboxFusion

        return SandboxFusion(name, limits)
    raise UserError(f"unknown sandbox {name!r}: bubblewrap, or the http:// URL of a SandboxFusion server")


@dataclass(frozen=True, slots=True)
class Bubblewrap(SandboxLimits):
    """Runs each program in new namespaces, made by bubblewrap. UserError where this machine does not allow them."""

    output_bytes: int = 64 * 1024
    """Most bytes of output. A program that writes more is stopped."""
    max_parallel: int = 2 * (os.cpu_count() or 1)
    """Programs that run at once in an event loop. The clock of a waiting program has not started."""
    _places: PerLoop[asyncio.Semaphore] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        bubblewrap.check()
        object.__setattr__(self, "_places", PerLoop(self._semaphore))

    @asynccontextmanager
    async def _semaphore(self) -> AsyncIterator[asyncio.Semaphore]:
        yield asyncio.Semaphore(self.max_parallel)

    async def run(self, code: str, stdin: str = "") -> Result:
        """Run the program with that input. Indentation that all lines share is removed first."""
        async with place(await self._places.get()):
            deadline = asyncio.get_running_loop().time() + self.seconds
            with limits.limited(self.memory_mb + self.file_mb + KERNEL_MB << 20, self.processes) as group:
                return await self._run(code, stdin, group, deadline)

    async def _run(self, code: str, stdin: str, group: Cgroup | None, deadline: float) -> Result:
        output, timed_out, most = bytearray(), False, len(STARTED) + self.output_bytes
        starting = asyncio.create_task(self._start(code, stdin, group))
        try:
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            process = await starting
            limits.end(process.pid)
            await process.wait()
            raise
        assert process.stdout is not None
        try:
            async with asyncio.timeout_at(deadline):
                while len(output) <= most and (part := await process.stdout.read(1 << 16)):
                    output += part
                if len(output) <= most:
                    await process.wait()
        except TimeoutError:
            timed_out = True
        finally:
            if process.returncode is None:
                limits.end(process.pid)
            while await process.stdout.read(1 << 16):  # what is left in the pipe, so that asyncio closes it
                pass
            code_of_end = await process.wait()
        text = output[len(STARTED) : most].decode(errors="replace")
        if group is not None and group.out_of_memory():
            return Result(text, Status.ERROR, error=f"stopped: all its processes held more than {self.memory_mb} MiB")
        if timed_out:
            return Result(text, Status.TIMEOUT, error=f"stopped after {self.seconds:g} s")
        if len(output) > most:
            return Result(text, Status.ERROR, error=f"stopped, and cut, after {self.output_bytes} bytes of output")
        if code_of_end == 0:
            return Result(text)
        if not output.startswith(STARTED):
            raise ToolError(f"the sandbox did not start: {excerpt(output.decode(errors='replace'), 200)}")
        return Result(text, Status.ERROR, error=ending(code_of_end, text))

    async def _start(self, code: str, stdin: str, group: Cgroup | None) -> asyncio.subprocess.Process:
        with (
            explained("the sandbox did not start", OSError, by=ToolError),
            bubblewrap.files(unindented(code).encode(errors="surrogatepass")) as files,
            _given(stdin) as given,
        ):
            return await asyncio.create_subprocess_exec(
                *limits.entered(group, bubblewrap.command(self, *files)),
                env={},
                pass_fds=files,
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def _given(stdin: str) -> AbstractContextManager[int]:
    """A file descriptor of the input."""
    return bubblewrap.readable(stdin.encode(errors="surrogatepass")) if stdin else nullcontext(subprocess.DEVNULL)
