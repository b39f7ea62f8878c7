"""A separate process that answers questions, with limits of time and memory: for libraries that may hang on a text.

The process says that it is ready, then reads a JSON line for each question and writes one for each answer. A question
that exceeds its limit or is interrupted ends the process; the next question starts a new one. The process inherits no
secrets.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from orgthink.util.errors import ToolError
from orgthink.util.terminal import excerpt, reason

MEMORY = 2 << 30
"""Bytes of address space."""
LONGEST_WAIT = 600
"""Seconds of wall clock for one question: far more than its limits of processor time allow."""

_READY = "orgthink.util.isolated: ready"
"""The line before the first answer. Libraries may print other lines before it."""
_TAIL = 4096
"""Bytes that are read from the end of the standard error of a process that did not start."""
_DYING = 5
"""Seconds to wait for the exit code of a process that has closed its output."""
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "SYSTEMROOT", "TMPDIR")


class ProcessEnded(ToolError):
    """A question ended its process, or took longer than `LONGEST_WAIT`."""


class IsolatedProcess:
    """The process of a module that calls `serve`. It answers one question at a time; others wait."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._lock = threading.Lock()
        self.process: subprocess.Popen[str] | None = None
        """The running process; `None` without one."""
        self._owner = 0

    def ask(self, question: Any) -> Any:
        """The answer to a question, both JSON values; `None` if it exceeded its limit of processor time.

        ProcessEnded if the process ended otherwise, ToolError if it does not start.
        """
        with self._lock:
            forked = self._owner != os.getpid()  # two programs that share a process would mix up its answers
            if self.process is None or forked or self.process.poll() is not None:
                self._start()
            line, code = self._exchange(json.dumps(question) + "\n")
        if line:
            return json.loads(line)
        if code == -signal.SIGPROF:
            return None
        raise ProcessEnded(f"a question ended {self._module}: {_ending(code)}")

    def _start(self) -> None:
        """Start the process and wait until it is ready. ToolError, with its last line of output, if it fails.

        It imports from the same places, ignores Ctrl-C, and has a fixed order of sets.
        """
        found = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
        with tempfile.TemporaryFile() as stderr:
            try:
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-W", "ignore", "-m", self._module],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    text=True,
                    start_new_session=True,
                    env={**found, "PYTHONPATH": path, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
                )
                self._owner, line, code = os.getpid(), "\n", 0
                while line and line.strip() != _READY:
                    line, code = self._exchange()
            except (OSError, ProcessEnded) as error:
                raise ToolError(f"{self._module} does not start: {reason(error)}") from error
            if line:
                return
            stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - _TAIL))
            lines = stderr.read().decode(errors="replace").split("\n")
        last = next(filter(str.strip, reversed(lines)), "no output")
        raise ToolError(f"{self._module} does not start: {excerpt(last)} ({_ending(code)})")

    def _exchange(self, question: str = "") -> tuple[str, int]:
        """Write a question and read a line; without a line the exit code of the process.

        ProcessEnded after `LONGEST_WAIT`. Whatever interrupts it ends the process: a late answer must not become the
        answer to the next question.
        """
        process: Any = self.process
        late, line = threading.Event(), ""
        watch = threading.Timer(LONGEST_WAIT, lambda: (late.set(), process.kill()))
        watch.start()
        try:
            with suppress(BrokenPipeError):
                process.stdin.write(question)
                process.stdin.flush()
                line = process.stdout.readline()
        except BaseException:
            self._end(0)
            raise
        finally:
            watch.cancel()
        code = 0 if line and not late.is_set() else self._end(_DYING)
        if late.is_set():
            raise ProcessEnded(f"{self._module} gave no answer for {LONGEST_WAIT} s")
        return line, code

    def _end(self, patience: float) -> int:
        """Kill the process if it does not end by itself within `patience` seconds. Returns its exit code."""
        process: Any = self.process
        self.process = None
        try:
            return process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def _ending(code: int) -> str:
    """The end of a process, for a message."""
    known = {-each.value: f"killed by {each.name}" for each in signal.Signals}
    return known.get(code, f"exit code {code}")


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

    out, nowhere = os.fdopen(os.dup(1), "w"), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    begin()
    os.dup2(nowhere, 2)
    out.write(f"\n{_READY}\n")
    out.flush()
    for line in sys.stdin:
        out.write(json.dumps(answer(json.loads(line))) + "\n")
        out.flush()
