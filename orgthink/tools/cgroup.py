"""A control group for each sandbox, where this machine lets us make one: the kernel counts all that a sandbox holds.

Both versions of the interface are used. The limits of one are files that the other does not have.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Generator, Iterator
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
