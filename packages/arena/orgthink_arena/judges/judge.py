"""Runs a program on the inputs of its tests, all in one bubblewrap sandbox."""

from __future__ import annotations

import inspect
import os
import re
import select
import socket
import subprocess
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from orgthink.tools import bubblewrap, limits
from orgthink.tools.limits import Cgroup
from orgthink.tools.python import ending
from orgthink.tools.sandbox import KERNEL_MB
from orgthink.util.errors import ToolError
from orgthink.util.terminal import excerpt
from orgthink.util.threads import given_up
from orgthink_arena.judges import harness

START = 30.0
"""Seconds for a sandbox to begin, and for what lies between its tests."""
LOOK = 0.1
"""Seconds between two checks of the memory and of cancellation."""
PROCESSES, FILE_MB = 16, 64
"""Processes and threads of a program at once; MiB of all its files together."""

_places = threading.BoundedSemaphore(os.cpu_count() or 1)
"""Sandboxes of this process at once: more of them would only take each other's seconds."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A program in Python, and how it is to be used."""

    source: str
    """Its text."""
    function: str | None = None
    """The function, or method of its class `Solution`, that a test calls; `None`: it reads from standard input."""


@dataclass(frozen=True, slots=True)
class JudgeLimits:
    """What a program may use in each test."""

    seconds: float = 6.0
    """Wall clock."""
    memory_mb: int = 1024
    """MiB of memory, for each process and for all of them."""
    output_mb: int = 16
    """MiB of output."""


@dataclass(frozen=True, slots=True)
class JudgedOutput:
    """What came of a test."""

    text: str
    """What the program printed on standard output; for a function what it returned, as `harness.plain` writes it."""
    failure: str | None = None
    """How it ended, if not well: one line."""


@dataclass(frozen=True, slots=True)
class Judge:
    """One sandbox for all tests of a program. The sandbox gets the input of a test and a pipe for the output only: it
    never learns which outputs are right, because the caller compares them."""

    limits: JudgeLimits
    """Of each test."""

    @contextmanager
    def outputs(self, program: Submission, inputs: Sequence[str]) -> Generator[Iterator[JudgedOutput]]:
        """An output for each input, made when it is read; the first failure is the last. It blocks.

        ToolError if the program could not be run at all.
        """
        with _place(), self._sandbox(program, len(inputs)) as sandbox:
            yield up_to_failure(sandbox.test(text) for text in inputs)

    @contextmanager
    def _sandbox(self, program: Submission, tests: int) -> Generator[_Sandbox]:
        most = bubblewrap.SandboxLimits(
            START + tests * (self.limits.seconds + 1), self.limits.memory_mb, PROCESSES, FILE_MB, packages=()
        )
        with ExitStack() as stack:
            group = stack.enter_context(
                limits.limited(self.limits.memory_mb + FILE_MB + KERNEL_MB << 20, PROCESSES + 1)
            )
            control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            stack.enter_context(control)
            with theirs:
                process = _started(most, group, theirs)
            stack.callback(_end, process)
            sandbox = _Sandbox(process, control, group, self.limits)
            sandbox.begin(program)
            yield sandbox


@dataclass(frozen=True, slots=True)
class _Sandbox:
    """A sandbox that runs one program."""

    process: subprocess.Popen[bytes]
    """What was started."""
    control: socket.socket
    """Our end of the supervisor's socket. No test has the other one."""
    group: Cgroup | None
    """Where the kernel counts its memory, if it does."""
    limits: JudgeLimits
    """Of each test."""

    def begin(self, program: Submission) -> None:
        """Wait for the supervisor, and give it the program. ToolError if it does not come."""
        self.control.settimeout(START)
        with suppress(OSError):
            if self.control.recv(len(harness.READY)) == harness.READY:
                with bubblewrap.readable(program.source.encode(errors="surrogatepass")) as file:
                    socket.send_fds(self.control, [f"={program.function or ''}".encode()], [file])
                return
        limits.end(self.process.pid)
        assert self.process.stdout is not None
        printed = self.process.stdout.read(1 << 16).decode(errors="replace")
        raise ToolError(f"the sandbox did not start: {excerpt(printed, 200) or 'it said nothing'}")

    def test(self, text: str) -> JudgedOutput:
        """Run the program on an input."""
        read, write = os.pipe()
        try:
            with bubblewrap.readable(text.encode(errors="surrogatepass")) as file:
                try:
                    socket.send_fds(self.control, [b"test"], [file, write])
                except ConnectionError:
                    return JudgedOutput("", self._ended())
                except OSError as error:  # others of this user may have used up what the kernel lets one send
                    raise ToolError(f"the sandbox got no test: {error}") from error
                finally:
                    os.close(write)
            output = bytearray()
            failure = self._watch(read, output)
        finally:
            os.close(read)
        return JudgedOutput(output.decode(errors="replace"), failure)

    def _watch(self, pipe: int, output: bytearray) -> str | None:
        """Read until the test is over and all writers are gone, or a limit is passed. Returns the failure."""
        deadline, code = time.monotonic() + self.limits.seconds, b""
        look = time.monotonic() + LOOK
        poll, control = select.poll(), self.control.fileno()
        poll.register(pipe, select.POLLIN)
        poll.register(control, select.POLLIN)
        while (now := time.monotonic()) < deadline:
            if now >= look:
                require_waiting()
                if self._out_of_memory():
                    return self._memory()
                look = now + LOOK
            ready = {found for found, _ in poll.poll(max(0.0, min(deadline, look) - now) * 1000)}
            if control in ready:
                poll.unregister(control)
                code = self._code()
                if not code:
                    return self._ended()
            if pipe in ready:
                part = os.read(pipe, 1 << 16)
                output += part
                if len(output) > self.limits.output_mb << 20:
                    return f"stopped after {self.limits.output_mb} MiB of output"
                if not part:
                    poll.unregister(pipe)
                    pipe = -1
            if code and pipe < 0:
                return self._end_of(int(code))
        return f"stopped after {self.limits.seconds:g} s"

    def _code(self) -> bytes:
        """How the program ended: −n by signal n. Empty if there is no sandbox any more."""
        with suppress(OSError):
            code = self.control.recv(16)
            return code if re.fullmatch(rb"-?[0-9]{1,3}", code) else b""
        return b""

    def _end_of(self, code: int) -> str | None:
        """What is wrong with a program that ended so. The kernel may have killed it, or a child, meanwhile."""
        if self._out_of_memory():
            return self._memory()
        return None if code == 0 else ending(code, "")

    def _ended(self) -> str:
        """Why there is no sandbox any more."""
        return self._memory() if self._out_of_memory() else "it ended its sandbox"

    def _out_of_memory(self) -> bool:
        return self.group is not None and self.group.out_of_memory()

    def _memory(self) -> str:
        return f"stopped: all its processes held more than {self.limits.memory_mb} MiB"


@contextmanager
def _place() -> Generator[None]:
    while not _places.acquire(timeout=LOOK):
        require_waiting()
    try:
        yield
    finally:
        _places.release()


def _started(most: bubblewrap.SandboxLimits, group: Cgroup | None, control: socket.socket) -> subprocess.Popen[bytes]:
    try:
        with bubblewrap.files(f"{inspect.getsource(harness)}\nsupervise()\n".encode()) as files:
            return subprocess.Popen(
                limits.entered(group, bubblewrap.command(most, *files)),
                env={},
                pass_fds=files,
                stdin=control.fileno(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        raise ToolError(f"the sandbox did not start: {error}") from error


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave nothing of it."""
    if process.poll() is None:
        limits.end(process.pid)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def up_to_failure(outputs: Iterator[JudgedOutput]) -> Iterator[JudgedOutput]:
    """The outputs to the first failure, while the caller waits for them."""
    for output in outputs:
        require_waiting()
        yield output
        if output.failure is not None:
            return


def require_waiting() -> None:
    """ToolError if the caller gave up."""
    if given_up():
        raise ToolError("the tests were given up")
