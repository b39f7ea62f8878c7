"""Limits of a sandbox: its control group, and the memory and the end of its processes (Linux only).

Both versions of the cgroup interface are used: the limits of one are files that the other does not have. Without
control groups, the memory of the processes is read from /proc.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from orgthink.util.errors import ToolError

_PREFIX = "orgthink-"
_OWN = 8
"""Processes by which a sandbox is made and watched."""
_OLD = 60.0
"""Seconds after which an empty group is nobody's: who made it was killed."""


@dataclass(frozen=True, slots=True)
class Cgroup:
    """Where one sandbox is counted."""

    folder: Path
    """Its files."""

    def out_of_memory(self) -> bool:
        """Whether the kernel has killed one of its processes because all of them held too much."""
        for name in ("memory.events", "memory.oom_control"):
            with suppress(OSError):
                counts = dict(line.split() for line in (self.folder / name).read_text().splitlines())
                return counts.get("oom_kill", "0") != "0"
        return False


def entered(group: Cgroup | None, command: list[str]) -> list[str]:
    """The command, as a member of the group from its first step, and the first to be killed if the machine runs out."""
    script = "echo 1000 2>/dev/null >/proc/self/oom_score_adj"
    if group is None:
        return ["/bin/sh", "-c", f'{script}; exec "$@"', "cgroup", *command]
    script += '; echo 0 >"$1" || exit; shift'  # its name is somebody else's, and never a part of the script
    return ["/bin/sh", "-c", f'{script}; exec "$@"', "cgroup", str(group.folder / "cgroup.procs"), *command]


@contextmanager
def limited(memory: int, processes: int) -> Generator[Cgroup | None]:
    """A group of at most so many bytes and processes, removed afterwards; None where there can be none.

    ToolError if one could be made before, and cannot now.
    """
    parent = _parent()
    try:
        group = None if parent is None else _made(parent, memory, processes)
    except OSError as error:
        raise ToolError(f"the sandbox did not start: {error}") from error
    try:
        yield group
    finally:
        if group is not None:
            with suppress(OSError):  # if something in it is still ending, whoever makes sandboxes next removes it
                group.folder.rmdir()


def _made(parent: Path, memory: int, processes: int) -> Cgroup:
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    limits = {"memory.limit_in_bytes": memory, "memory.memsw.limit_in_bytes": memory}
    limits |= {"memory.max": memory, "memory.swap.max": 0, "memory.oom.group": 1, "pids.max": processes + _OWN}
    for name, value in limits.items():
        if (folder / name).exists():
            (folder / name).write_text(str(value))
    return Cgroup(folder)


@cache
def _parent() -> Path | None:
    """The nearest folder in which groups can be made that have a limit of memory and can be entered from here."""
    return next(filter(_serves, _folders()), None)


def _serves(folder: Path) -> bool:
    """Whether a group in it works. Those of processes that were killed are removed."""
    for old in folder.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > _OLD:
                old.rmdir()
    try:
        probe = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=folder))
    except OSError:
        return False
    try:
        counts = any((probe / name).exists() for name in ("memory.max", "memory.limit_in_bytes"))
        enter = entered(Cgroup(probe), ["/bin/true"])
        return counts and not subprocess.run(enter, env={}, capture_output=True, timeout=30).returncode
    except (OSError, subprocess.TimeoutExpired):
        return False
    finally:
        with suppress(OSError):
            probe.rmdir()


def _folders() -> Iterator[Path]:
    """Our own group, where memory is counted, and those above it as long as no limit of ours is left behind."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    own = {controller: path for _, controllers, path in lines for controller in controllers.split(",")}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, kind = line.partition(" - ")
        root, mounted = mount.split()[3:5]
        if len(kind.split()) != 3:  # a mount without a source
            continue
        system, _, options = kind.split()
        path = own.get("memory" if "memory" in options.split(",") else "")
        if not system.startswith("cgroup") or path is None or not Path(path).is_relative_to(root):
            continue
        if system == "cgroup2" or "memory" in options.split(","):
            folder = Path(mounted) / Path(path).relative_to(root)
            yield folder
            while folder != Path(mounted) and _unlimited(folder):
                folder = folder.parent
                yield folder


def _unlimited(folder: Path) -> bool:
    """Whether a process may leave it without leaving a limit. The older interface does not need it."""
    limits = [folder / name for name in ("memory.max", "memory.high", "cpu.max", "pids.max")]
    return limits[0].exists() and all(file.read_text().startswith("max") for file in limits if file.exists())


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
