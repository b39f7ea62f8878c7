"""Processes that are watched: their memory, their files, and what they leave behind when they are killed."""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from orgthink.tools.limits import children

_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2)."""
LAST = 10.0
"""Seconds after which a process that outlives its parent is an orphan."""


def adopt_orphans() -> None:
    """From now on processes whose parent is gone become children of this one."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def orphans() -> list[str]:
    """Commands of the children that this process still has some seconds later. They are killed."""
    until = time.monotonic() + LAST
    while _reaped() and time.monotonic() < until:
        time.sleep(0.05)
    found = []
    for pid in _reaped():
        with suppress(OSError):
            found.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200])
            os.kill(pid, signal.SIGKILL)
    return found


def _reaped() -> list[int]:
    """The children of this process, without those that have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return children(os.getpid())


class Watched:
    """A command in a process of its own."""

    def __init__(self, command: list[str], log: Path, environment: dict[str, str]) -> None:
        self.sizes: list[float] = []
        """Its memory over time, in MiB."""
        with log.open("ab") as output:
            how = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output, "env": os.environ | environment}
            self._process = subprocess.Popen(command, **how)  # type: ignore[call-overload]
        self._place = Path(f"/proc/{self._process.pid}")

    def ended(self, seconds: float = 0.0) -> bool:
        """Whether it ends within these seconds. It is measured before."""
        with suppress(OSError, ValueError, IndexError):
            pages = int((self._place / "statm").read_text().split()[1])
            self.sizes.append(round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1))
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.poll() is not None

    @property
    def code(self) -> int | None:
        """Its exit code."""
        return self._process.returncode

    @property
    def files(self) -> int:
        """Files and connections that it has open."""
        return len(list((self._place / "fd").iterdir()))

    def kill(self, how: signal.Signals) -> None:
        with suppress(OSError):
            self._process.send_signal(how)


def unlocked(folder: Path) -> bool:
    """Whether no process holds the lock of a run folder."""
    with (folder / ".lock").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def temporary(folder: Path) -> list[str]:
    """Files of a folder that are half written or were forgotten."""
    hidden = (file for file in folder.rglob(".*") if file.name != ".lock")
    return [str(file) for file in (*hidden, *folder.rglob("[!.]*.tmp"))]


def rest(began: float, share: float) -> None:
    """Wait until this process and its children have used no more than a share of a core since then."""
    own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    used = own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime
    time.sleep(max(0.0, used / share - (time.monotonic() - began)))
