"""The sandbox of untrusted code: the command line of bubblewrap, and a check whether it works on this machine.

In it there is a read-only Python, an empty folder for files, and nothing else: no /proc, no /home, no network, no
environment. The code is process 1 of its sandbox, so that the kernel ends all others with it, however they hide.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache

from orgthink.errors import UserError
from orgthink.tools import seccomp

NOBODY = "65534"
"""User and group inside; outside too where root starts it, for the kernel exempts root from the limit on processes."""

_WAY_OUT = "install it (apt-get install bubblewrap), or name the URL of a SandboxFusion server"

COMPLAINTS = ("bwrap: ", "setpriv: ", "prlimit: ")
"""What output begins with if the sandbox could not be made. Code that says so too fails a little differently."""


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What code in the sandbox may use."""

    seconds: float
    """Of wall clock; the caller sees to it, and here a process gets no more of every processor."""
    memory_mb: int
    """MiB of address space, each process."""
    processes: int
    """Processes and threads at once."""
    file_mb: int
    """MiB of all files together."""


def command(limits: SandboxLimits, code: int, filter: int) -> list[str]:
    """What to start, with no environment: it ends as the code does (128 + n for signal n).

    `code` and `filter` are file descriptors to inherit: the program, and the system calls that it may not make.
    """
    python = f"/python/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    mounts = [
        "--unshare-all", "--unshare-user", "--disable-userns", "--uid", NOBODY, "--gid", NOBODY, "--cap-drop", "ALL",
        "--die-with-parent", "--new-session", "--as-pid-1", "--hostname", "sandbox", "--seccomp", str(filter),
        "--setenv", "LD_LIBRARY_PATH", "/python/lib", "--setenv", "HOME", "/tmp", "--setenv", "PATH", "/usr/bin",
    ]  # fmt: skip
    for name in ("null", "full", "random", "urandom"):  # no zero: mapped, it is shared memory that nobody can count
        mounts += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    mounts += ["--symlink", "/tmp", "/dev/shm", "--perms", "0444", "--file", str(code), "/code.py"]
    mounts += ["--size", str(limits.file_mb << 20), "--tmpfs", "/tmp", "--chdir", "/tmp", "--remount-ro", "/"]
    program = [*_limited(limits), python, "-I", "-S", "-B", "-X", "utf8", "/code.py"]
    if os.geteuid():
        return [_bubblewrap(), *_system(sys.base_prefix), *mounts, "--", *program]
    return [*_as_nobody(), "/bwrap", *_system("/python"), *mounts, "--", *program]


def _as_nobody() -> list[str]:
    """Root enters a sandbox that holds only the system, then becomes `nobody`, who may lack the right to read the path.

    Process 1 of that sandbox is a shell that stays root. Bubblewrap gives up its right to kill other users' processes,
    so its own signal at exit would not reach those of `nobody`.
    """
    outer = ["--unshare-pid", "--as-pid-1", "--die-with-parent", "--tmpfs", "/tmp"]
    outer += ["--ro-bind", _bubblewrap(), "/bwrap"]
    outer += ["--bind", "/proc", "/proc", "--dev-bind", "/dev", "/dev"]
    nobody = ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]
    return [_bubblewrap(), *_system(sys.base_prefix), *outer, "--", "/bin/sh", "-c", '"$@"; exit $?', "sh", *nobody]


def _system(python: str) -> list[str]:
    """Read-only: libraries and programs of the system, and the Python of that prefix."""
    visible = ["--dir", "/usr", "--dir", "/usr/share", "--dir", "/dev", "--ro-bind", python, "/python"]
    for folder in ("/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/bin", "/usr/share/zoneinfo"):
        visible += ["--ro-bind-try", folder, folder]
    for folder in ("/lib", "/lib32", "/lib64", "/libx32", "/bin"):
        if os.path.islink(folder):
            visible += ["--symlink", os.readlink(folder), folder]
        else:
            visible += ["--ro-bind-try", folder, folder]
    return visible


def _limited(limits: SandboxLimits) -> list[str]:
    """SandboxLimits that the code cannot raise. Those of the sandbox itself are set once inside."""
    most = {
        "cpu": int(limits.seconds * (os.cpu_count() or 1)) + 1,  # also where nobody is left to look at the clock
        "as": limits.memory_mb << 20,
        "nproc": limits.processes,
        "fsize": limits.file_mb << 20,
        "nofile": 64,
        "core": 0,
    }
    return ["/usr/bin/prlimit", *(f"--{name}={value}" for name, value in most.items())]


def _bubblewrap() -> str:
    """Where it is; UserError if it is not installed."""
    found = shutil.which("bwrap")
    if found is None:
        raise UserError(f"code runs in bubblewrap only, which is not here: {_WAY_OUT}")
    return os.path.realpath(found)


@cache
def check() -> None:
    """Make a sandbox once; UserError with bubblewrap's own words if this machine cannot."""
    with files(b"") as (code, filter):
        made = command(SandboxLimits(seconds=5, memory_mb=256, processes=16, file_mb=1), code, filter)
        try:
            done = subprocess.run(
                made, env={}, pass_fds=(code, filter), stdin=subprocess.DEVNULL, capture_output=True, timeout=30
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UserError(
                f"code cannot be isolated here ({error}): name the URL of a SandboxFusion server"
            ) from error
    if done.returncode:
        message = " ".join(done.stderr.decode(errors="replace").split()) or f"exit code {done.returncode}"
        raise UserError(
            f"code cannot be isolated here ({message[:200]}): allow user namespaces and install bubblewrap 0.8 or "
            "newer, or name the URL of a SandboxFusion server"
        )


@contextmanager
def files(code: bytes) -> Generator[tuple[int, int]]:
    """File descriptors of the program and of the filter, for `command`. They live in memory."""
    with ExitStack() as opened:
        descriptors = []
        for name, content in (("code", code), ("filter", seccomp.program())):
            file = opened.enter_context(open(os.memfd_create(name), "wb+", buffering=0))
            file.write(content)
            file.seek(0)
            descriptors.append(file.fileno())
        yield descriptors[0], descriptors[1]
