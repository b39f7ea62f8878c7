"""A separate process that answers questions, with limits of time and memory: for libraries that may hang on a text.

The process sends a message when it is ready, then receives a question in JSON and sends its answer in JSON. A question
that exceeds its limit or is interrupted ends the process; the next question starts a new one. The process inherits no
secrets.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, Pipe
from socket import SO_SNDTIMEO, SOL_SOCKET, socket
from typing import Any

from orgthink.util.errors import ToolError
from orgthink.util.terminal import excerpt, reason

MEMORY = 2 << 30
"""Bytes of address space."""
LONGEST_WAIT = 600
"""Seconds of wall clock for one question: far more than its limits of processor time allow."""

_TAIL = 4096
"""Characters that are read from the end of the standard error of a process that did not start."""
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "SYSTEMROOT", "TMPDIR", "TZ")


class ProcessEnded(ToolError):
    """A question ended its process, or took longer than `LONGEST_WAIT`."""


class IsolatedProcess:
    """The process of a module that calls `serve`. It answers one question at a time; others wait."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        """The running process; `None` without one."""
        self.pipe: Any = None
        """Our end of its standard input, which is a socket. What it prints is lost."""
        self._owner = 0

    def ask(self, question: Any) -> Any:
        """The answer to a question, both JSON values; `None` if it exceeded its limit of processor time.

        ProcessEnded if the process ended otherwise, ToolError if it does not start.
        """
        with self._lock:
            forked = self._owner != os.getpid()  # two programs that share a process would mix up its answers
            if self.process is None or forked or self.process.poll() is not None:
                self._start()
            return self._exchange(json.dumps(question))

    def _start(self) -> None:
        """Start the process and wait until it is ready. ToolError, with its last line of output, if it fails.

        It imports from the same places, ignores Ctrl-C, and has a fixed order of sets.
        """
        found = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
        self.pipe, theirs = Pipe()
        with socket(fileno=os.dup(self.pipe.fileno())) as sending:  # otherwise it waits for a process that hangs
            sending.setblocking(True)  # whatever the default of the program's sockets is
            sending.setsockopt(SOL_SOCKET, SO_SNDTIMEO, struct.pack("ll", LONGEST_WAIT, 0))
        with theirs, tempfile.TemporaryFile() as stderr:
            try:
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-W", "ignore", "-m", self._module],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    start_new_session=True,
                    env={**found, "PYTHONPATH": path, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
                )
                theirs.close()  # the end of the process must be the end of the pipe
                self._owner = os.getpid()
                self._exchange()
            except (OSError, ProcessEnded) as error:
                stderr.seek(0)
                lines = stderr.read().decode(errors="replace")[-_TAIL:].split("\n")
                last = next(filter(str.strip, reversed(lines)), "no output")
                raise ToolError(f"{self._module} does not start: {excerpt(last)} ({reason(error)})") from error

    def _exchange(self, question: str = "") -> Any:
        """Send a question and receive its answer; without a question the message that the process is ready.

        Whatever interrupts it ends the process: a late answer must not become the answer to the next question.
        """
        ended = f"gave no answer for {LONGEST_WAIT} s"
        try:
            if question:
                self.pipe.send_bytes(question.encode())
            if self.pipe.poll(LONGEST_WAIT):
                return json.loads(self.pipe.recv_bytes())
            self._end()
        except BlockingIOError:
            self._end()
        except (EOFError, OSError):
            code = self._end()
            if question and code == -signal.SIGPROF:
                return None
            signals = {-each.value: f"killed by {each.name}" for each in signal.Signals}
            ended = f"ended: {signals.get(code, f'exit code {code}')}"
        except BaseException:
            self._end()
            raise
        raise ProcessEnded(f"{self._module} {ended}")

    def _end(self) -> int:
        """Kill the process, unless it has ended by itself. Returns its exit code."""
        process: Any = self.process
        self.process = None
        process.kill()
        return process.wait()


@contextmanager
def processor_seconds(limit: float) -> Iterator[None]:
    """In the process: ends it after so many seconds of processor time."""
    signal.setitimer(signal.ITIMER_PROF, limit)  # the signal is not handled
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def serve(answer: Callable[[Any], Any], begin: Callable[[], object] = lambda: None) -> None:
    """In the process: call `begin`, say that it is ready, then answer questions. Output of libraries is lost."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    begin()
    os.dup2(1, 2)  # from now on errors are lost, too
    pipe, message = Connection(os.dup(0)), "ready"
    with suppress(EOFError):  # the other program has ended
        while True:
            pipe.send_bytes(json.dumps(message).encode())
            message = answer(json.loads(pipe.recv_bytes()))
