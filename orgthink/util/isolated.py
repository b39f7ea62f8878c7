"""A process of its own that answers questions, with limits of time and memory: for libraries that may hang on a text.

The process says that it is ready, reads a numbered JSON line for each question and writes one of the same number for
each answer. A question that exceeds its limit, or that somebody interrupts, ends the process; the next question starts
a new one. The process inherits no secrets, and it ends when its parent does.
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
from contextlib import contextmanager
from typing import IO, Any

from orgthink.util.errors import ToolError
from orgthink.util.terminal import excerpt, reason

MEMORY = 2 << 30
"""Bytes of address space."""
LONGEST_WAIT = 600
"""Seconds of wall clock for one question: far more than its limits of processor time allow."""

_TRIES = 2
"""Processes that one question may end, if none says why: somebody else may have killed the first."""
_READY = "orgthink.util.isolated: ready"
"""The first line of a process that is to be read. What comes before it a library has printed."""
_TAIL = 4096
"""Bytes that are read from the end of what a process wrote before it was ready."""
_DYING = 5
"""Seconds for a process to end that has closed its output; its exit code says why it ended."""
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "SYSTEMROOT", "TMPDIR")


class ProcessEnded(ToolError):
    """A question ended its process twice, or took the longest wait. It is not known to exceed its own limit of time."""


class IsolatedProcess:
    """The process of a module that calls `serve`. One question at a time; others wait."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._lock = threading.Lock()
        self._number = 0
        self.process: subprocess.Popen[str] | None = None
        """The running process, if there is one."""
        os.register_at_fork(after_in_child=self._leave)

    def _leave(self) -> None:
        """A forked copy of this process starts its own: two that asked one would get each other's answers."""
        self._lock, self.process = threading.Lock(), None

    def ask(self, question: Any) -> Any:
        """The answer, JSON values both; `None` if the question exceeded its limit of processor time.

        ProcessEnded if it ended its process otherwise. ToolError if there is no process, for it does not start.
        """
        with self._lock:
            code = 0
            for _ in range(_TRIES):
                if answers := self._answers(question):
                    return answers[0]
                if (code := self._end(_DYING)) == -signal.SIGPROF:
                    return None
        raise ProcessEnded(f"a question ended {self._module}, {_TRIES} times: {_ending(code)}")

    def _answers(self, question: Any) -> list[Any]:
        """The one answer; none if the process ended over the question."""
        if self.process is None or self.process.poll() is not None:
            self.process = self._start()
        self._number += 1
        try:
            line = _exchange(self.process, json.dumps([self._number, question]))
            if line is None:
                return []
            number, answer = json.loads(line)
            if number != self._number:
                raise RuntimeError(f"{self._module} gave the answer to another question")
        except BaseException:  # its answer may still come: nobody else may take it for theirs
            self._end()
            raise
        return [answer]

    def _end(self, patience: float = 0) -> int:
        """Kill the process if it does not end by itself; its exit code."""
        process, self.process = self.process, None
        return 0 if process is None else _ended(process, patience)

    def _start(self) -> subprocess.Popen[str]:
        """Start the process, and wait until it is ready. ToolError with the last line that it wrote if it never is."""
        try:
            with tempfile.TemporaryFile() as stderr:
                process = self._begin(stderr)
                try:
                    ready = _is_ready(process)
                except BaseException:
                    _ended(process)
                    raise
                if ready:
                    return process
                code, last = _ended(process, _DYING), _last_line(stderr)
        except (OSError, ProcessEnded) as error:  # no question is to blame
            raise ToolError(f"{self._module} does not start: {reason(error)}") from error
        raise ToolError(f"{self._module} does not start: {last or 'it wrote nothing'} ({_ending(code)})")

    def _begin(self, stderr: IO[bytes]) -> subprocess.Popen[str]:
        """The process. It finds the modules of this one, ignores Ctrl-C, and orders sets as anywhere."""
        found = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
        return subprocess.Popen(
            [sys.executable, "-P", "-W", "ignore", "-m", self._module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
            env={**found, "PYTHONPATH": path, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
        )


@contextmanager
def _watched(process: subprocess.Popen[str]) -> Iterator[None]:
    """Around a wait for the process: the longest wait kills it. ProcessEnded then."""
    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill()

    watch = threading.Timer(LONGEST_WAIT, end)
    watch.start()
    try:
        yield
    finally:
        watch.cancel()
    if late.is_set():
        raise ProcessEnded(f"{process.args[-1]} said nothing for {LONGEST_WAIT} s")  # type: ignore[index]


def _is_ready(process: subprocess.Popen[str]) -> bool:
    """Whether the process becomes ready; else it ended."""
    assert process.stdout is not None
    with _watched(process):
        return any(line.strip() == _READY for line in iter(process.stdout.readline, ""))


def _exchange(process: subprocess.Popen[str], line: str) -> str | None:
    """The line that comes back; `None` if the process ended."""
    assert process.stdin is not None and process.stdout is not None
    with _watched(process):
        try:
            process.stdin.write(line + "\n")
            process.stdin.flush()
            return process.stdout.readline().strip() or None
        except BrokenPipeError:
            return None


def _ended(process: subprocess.Popen[str], patience: float = 0) -> int:
    """The exit code of a process that is killed if it does not end by itself."""
    try:
        return process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _ending(code: int) -> str:
    """How a process ended, for a message."""
    if code >= 0:
        return f"exit code {code}"
    known = {each.value: each.name for each in signal.Signals}
    return f"killed by {known.get(-code, f'signal {-code}')}"


def _last_line(stderr: IO[bytes]) -> str:
    """The last line that a process wrote: of a Python program, its exception. Empty without one."""
    stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - _TAIL))
    lines = [line for line in stderr.read().decode(errors="replace").splitlines() if line.strip()]
    return excerpt(lines[-1]) if lines else ""


@contextmanager
def processor_seconds(limit: float) -> Iterator[None]:
    """In the process: what takes longer than this ends it."""
    signal.setitimer(signal.ITIMER_PROF, limit)  # the signal is not handled
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def serve(answer: Callable[[Any], Any], begin: Callable[[], object] = lambda: None) -> None:
    """In the process: `begin`, say that it is ready, then answer questions until there are no more. What a library
    prints is lost."""
    import resource

    out, nowhere = os.fdopen(os.dup(1), "w"), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    begin()
    os.dup2(nowhere, 2)  # nobody reads it any more
    out.write(f"\n{_READY}\n")  # on a line of its own
    out.flush()
    for line in sys.stdin:
        number, question = json.loads(line)
        out.write(json.dumps([number, answer(question)]) + "\n")
        out.flush()
