"""A process of its own that answers questions, with limits of time and memory: for libraries that may hang on a text.

The process reads a numbered JSON line for each question and writes one of the same number for each answer. A question
that exceeds its limit, or that somebody interrupts, ends the process; the next question starts a new one. The process
inherits no secrets, and it ends when its parent does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

MEMORY = 2 << 30
"""Bytes of address space."""
LONGEST_WAIT = 600
"""Seconds of wall clock for one question: far more than its limits of processor time allow."""

_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "SYSTEMROOT", "TMPDIR")


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
        """The answer, JSON values both; `None` if the process ended over the question."""
        with self._lock:
            if self.process is None or self.process.poll() is not None:
                self.process = self._start()
            self._number += 1
            try:
                line = _exchange(self.process, json.dumps([self._number, question]))
                if line is None:
                    self._end()
                    return None
                number, answer = json.loads(line)
                if number != self._number:
                    raise RuntimeError(f"{self._module} gave the answer to another question")
            except BaseException:  # its answer may still come: nobody else may take it for theirs
                self._end()
                raise
        return answer

    def _end(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()

    def _start(self) -> subprocess.Popen[str]:
        """Start the process. It finds the modules of this one, ignores Ctrl-C, and orders sets as anywhere."""
        found = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
        return subprocess.Popen(
            [sys.executable, "-P", "-W", "ignore", "-m", self._module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            env={**found, "PYTHONPATH": path, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
        )


def _exchange(process: subprocess.Popen[str], line: str) -> str | None:
    """The line that comes back; `None` if the process ended."""
    assert process.stdin is not None and process.stdout is not None
    watch = threading.Timer(LONGEST_WAIT, process.kill)
    watch.start()
    try:
        process.stdin.write(line + "\n")
        process.stdin.flush()
        return process.stdout.readline().strip() or None
    except BrokenPipeError:
        return None
    finally:
        watch.cancel()


@contextmanager
def processor_seconds(limit: float) -> Iterator[None]:
    """In the process: what takes longer than this ends it."""
    import signal

    signal.setitimer(signal.ITIMER_PROF, limit)  # the signal is not handled
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def serve(answer: Callable[[Any], Any], begin: Callable[[], object] = lambda: None) -> None:
    """In the process: `begin`, then answer questions until there are no more. What a library prints is lost."""
    import resource

    out = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    begin()
    for line in sys.stdin:
        number, question = json.loads(line)
        out.write(json.dumps([number, answer(question)]) + "\n")
        out.flush()
