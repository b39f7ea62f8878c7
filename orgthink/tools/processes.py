"""The processes below one of ours: how much memory they hold, and an end to them (Linux's /proc)."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress

_PAGE = os.sysconf("SC_PAGE_SIZE")
_NAME, _SOCKET = 1 << 10, 208 << 10
"""Bytes of a file's name and number; and most that a socket of the machine itself holds, as the kernel sets it."""


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
    held = 0
    for one in family(pid):
        with suppress(OSError), open(f"/proc/{one}/statm") as file:
            resident, shared = file.read().split()[1:3]
            held += (int(resident) - int(shared)) * _PAGE
    return held


def hidden(pid: int) -> int:
    """Bytes that the kernel may hold for a sandbox below a process of ours, in names of files and in sockets.

    None while there is no sandbox: what is below is then still in our own network.
    """
    *_, last = family(pid)
    with suppress(OSError):
        if os.readlink(f"/proc/{last}/ns/net") != os.readlink("/proc/self/ns/net"):
            files = os.statvfs(f"/proc/{last}/root/tmp")
            with open(f"/proc/{last}/net/unix") as sockets:
                return (files.f_files - files.f_ffree) * _NAME + (sum(1 for _ in sockets) - 1) * _SOCKET
    return 0


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
