"""The processes below one of ours: how much memory they hold, and an end to them (Linux's /proc)."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress

_PAGE = os.sysconf("SC_PAGE_SIZE")
_NAME, _SOCKET = 1 << 10, 312 << 10
"""Bytes of a file's name and number; and most that a stream of the machine itself holds: its buffer, as the kernel sets
it, and half as much for what goes in last."""


def children(pid: int) -> list[int]:
    """Those that it, or one of its threads, has started or adopted; none if it is gone."""
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children") as file:
                found += map(int, file.read().split())
    return found


def family(pid: int) -> Iterator[int]:
    """It and all below it, as they are found one by one."""
    yield pid
    for child in children(pid):
        yield from family(child)


def memory(pid: int) -> int:
    """Bytes in use by it and all below it; what a fork shares counts twice.

    Pages of files are left out, and with them all that is mapped as shared: in a room that is files only (`seccomp`).
    """
    return sum(map(_resident, family(pid)))


def _resident(pid: int) -> int:
    """Bytes that a thread of it sees in use. One that has ended, as the first may have, sees none."""
    held = 0
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/statm") as file:
                resident, shared = file.read().split()[1:3]
                held = max(held, (int(resident) - int(shared)) * _PAGE)
    return held


def hidden(pid: int) -> int:
    """Bytes that the kernel may hold for sandboxes below a process of ours, in names of files and in sockets.

    Every network and every folder of files counts once, whichever process it is found at: one that has ended has none.
    Ours do not count, in which a sandbox is made.
    """
    return sum(_apart(pid, "ns/net", _sockets)) + sum(_apart(pid, "root/tmp", _names))


def _apart(pid: int, place: str, bytes_held: Callable[[int], int]) -> Iterator[int]:
    """What it holds in each of those that is not ours."""
    seen = {_identity("self", place)}
    for one in family(pid):
        with suppress(OSError):
            if (found := _identity(one, place)) not in seen:
                seen.add(found)
                yield bytes_held(one)


def _identity(pid: int | str, place: str) -> tuple[int, int]:
    found = os.stat(f"/proc/{pid}/{place}")
    return found.st_dev, found.st_ino


def _sockets(pid: int) -> int:
    with open(f"/proc/{pid}/net/unix", "rb") as lines:  # a program chooses their names
        return (sum(1 for _ in lines) - 1) * _SOCKET


def _names(pid: int) -> int:
    files = os.statvfs(f"/proc/{pid}/root/tmp")
    return (files.f_files - files.f_ffree) * _NAME


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that waits for what is below it, from below, so that it is still there to wait for it.

    Its first child is process 1 of a namespace, with which the kernel ends all others. Before there is one, the process
    itself is killed, and those of its group, in which it is the leader. That the caller must wait for it still holds.
    """
    with suppress(ProcessLookupError):
        below = children(process.pid)
        for child in below:
            os.kill(child, signal.SIGKILL)
        if not below:
            os.killpg(process.pid, signal.SIGKILL)
