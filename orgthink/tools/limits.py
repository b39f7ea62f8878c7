"""Control groups of sandboxes, and how a sandbox is killed (Linux only).

Both versions of the cgroup interface are supported: the limits of one are files that the other does not have. Without
control groups only the memory of each process is limited.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from orgthink.util.errors import ToolError, explained

_PREFIX = "orgthink-"
_OWN = 8
"""Processes that set up and watch a sandbox."""
_OLD = 60.0
"""Seconds after which an empty group is removed: the process that made it was killed."""


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The control group of one sandbox."""

    folder: Path
    """Its folder below /sys/fs/cgroup."""

    def out_of_memory(self) -> bool:
        """Whether the kernel has killed a process because the group used too much memory."""
        for name in ("memory.events", "memory.oom_control"):
            with suppress(OSError):
                counts = dict(line.split() for line in (self.folder / name).read_text().splitlines())
                return counts.get("oom_kill", "0") != "0"
        return False


def entered(group: Cgroup | None, command: list[str]) -> list[str]:
    """The command, started inside the group, and the first to be killed if the machine runs out of memory."""
    script = "echo 1000 2>/dev/null >/proc/self/oom_score_adj"
    if group is None:
        return ["/bin/sh", "-c", f'{script}; exec "$@"', "cgroup", *command]
    script += '; echo 0 >"$1" || exit; shift'  # the folder's name is an argument, not part of the script
    return ["/bin/sh", "-c", f'{script}; exec "$@"', "cgroup", str(group.folder / "cgroup.procs"), *command]


@contextmanager
def limited(memory: int, processes: int) -> Generator[Cgroup | None]:
    """A group with limits of memory (bytes) and processes, removed afterwards; `None` on machines without groups.

    ToolError if making the group fails.
    """
    parent = _parent()
    with explained("the sandbox did not start", OSError, by=ToolError):
        group = None if parent is None else _made(parent, memory, processes)
    try:
        yield group
    finally:
        if group is not None:
            with suppress(OSError):  # a process may still be ending: `_serves` removes the group later
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
    """The nearest folder in which this process can make and enter groups with a memory limit."""
    return next(filter(_serves, _folders()), None)


def _serves(folder: Path) -> bool:
    """Whether a group in this folder works. Removes groups that killed processes left behind."""
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
    """The group of this process for memory, and its parents as long as leaving the group escapes no limit."""
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
    """Whether a group has no limits (version 2 only)."""
    limits = [folder / name for name in ("memory.max", "memory.high", "cpu.max", "pids.max")]
    return limits[0].exists() and all(file.read_text().startswith("max") for file in limits if file.exists())


def children(pid: int) -> list[int]:
    """Child processes of a process and its threads; empty if the process has ended."""
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children") as file:
                found += map(int, file.read().split())
    return found


def end(pid: int) -> None:
    """Kill a sandbox. `pid` is the process that we started, the leader of its process group.

    Its first child is process 1 of a namespace: the kernel ends all others with it. If there is no child yet, the
    process group is killed. The caller must still wait for the process.
    """
    with suppress(ProcessLookupError):
        below = children(pid)
        for child in below:
            os.kill(child, signal.SIGKILL)
        if not below:
            os.killpg(pid, signal.SIGKILL)
