"""The sandbox of untrusted code: the command line of bubblewrap, and a check whether it works on this machine.

In it there is a read-only Python with its standard library, an empty folder for files, and nothing else: no packages,
no /proc, no /home, no network, no environment. Process 1 of a sandbox waits for the code, with a clock of its own. The
kernel ends all others with it, however they hide; so a sandbox also ends where nobody is left to end it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from glob import glob

from orgthink.tools import seccomp
from orgthink.util.errors import UserError
from orgthink.util.terminal import excerpt

NOBODY = "65534"
"""User and group inside; outside too where root starts it, for the kernel exempts root from the limit on processes."""

_WAY_OUT = "install it (apt-get install bubblewrap), or name the URL of a SandboxFusion server"

COMPLAINTS = ("bwrap: ", "setpriv: ", "prlimit: ", "cgroup: ", "/usr/bin/timeout: ")
"""What output begins with if the sandbox could not be made. Code that says so too fails a little differently."""


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What code in the sandbox may use."""

    seconds: float
    """Of wall clock; the caller sees to it, and a second later the sandbox itself."""
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
        return [_bubblewrap(), *_system(), *_python(), *mounts, "--", *program]
    return [*_as_nobody(), "/bwrap", *_system(), "--ro-bind", "/python", "/python", *mounts, "--", *program]


def _as_nobody() -> list[str]:
    """Root enters a sandbox that holds only the system, then becomes `nobody`, who may lack the right to read the path.

    Process 1 of that sandbox is a shell that stays root. Bubblewrap gives up its right to kill other users' processes,
    so its own signal at exit would not reach those of `nobody`.
    """
    outer = ["--unshare-pid", "--as-pid-1", "--die-with-parent", "--tmpfs", "/tmp"]
    outer += ["--ro-bind", _bubblewrap(), "/bwrap"]
    outer += ["--bind", "/proc", "/proc", "--dev-bind", "/dev", "/dev"]
    nobody = ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]
    return [_bubblewrap(), *_system(), *_python(), *outer, "--", "/bin/sh", "-c", '"$@"; exit $?', "sh", *nobody]


def _system() -> list[str]:
    """Read-only: libraries and programs of the system, without Python packages."""
    visible = ["--dir", "/usr", "--dir", "/usr/share", "--dir", "/dev"]
    for folder in ("/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/bin", "/usr/share/zoneinfo"):
        visible += ["--ro-bind-try", folder, folder]
    for folder in ("/lib", "/lib32", "/lib64", "/libx32", "/bin"):
        if os.path.islink(folder):
            visible += ["--symlink", os.readlink(folder), folder]
        else:
            visible += ["--ro-bind-try", folder, folder]
    for folder in glob("/usr/lib*/python3*/*-packages"):
        visible += _emptied(folder)
    return visible


def _python() -> list[str]:
    """Read-only: the interpreter, its standard library and its shared libraries.

    Packages would show a program how it is graded, if this one is installed there.
    """
    base = sys.base_prefix
    library = os.path.relpath(sysconfig.get_path("stdlib"), base)
    interpreter = f"bin/python{sys.version_info.major}.{sys.version_info.minor}"
    visible = []
    for folder in ("", "/bin", "/lib", f"/{os.path.dirname(library)}"):  # else they are root's only
        visible += ["--dir", f"/python{folder}"]
    for part in (interpreter, library):
        visible += ["--ro-bind", os.path.join(base, part), f"/python/{part}"]
    for folder in glob(os.path.join(base, library, "*-packages")):
        visible += _emptied(f"/python/{library}/{os.path.basename(folder)}")
    for file in glob(os.path.join(base, "lib", "*.so*")) if base != "/usr" else ():  # the system's are there
        visible += ["--ro-bind", file, f"/python/lib/{os.path.basename(file)}"]
    return visible


def _emptied(folder: str) -> list[str]:
    """It is there, with nothing in it, read-only."""
    return ["--perms", "0555", "--tmpfs", folder, "--remount-ro", folder]


def _limited(limits: SandboxLimits) -> list[str]:
    """SandboxLimits that the code cannot raise, and process 1 with its clock: `timeout` waits for the code only."""
    most = {
        "as": limits.memory_mb << 20,
        "nproc": limits.processes + 1,
        "fsize": limits.file_mb << 20,
        "nofile": 64,
        "core": 0,
        "memlock": 0,
        "msgqueue": 0,
        "sigpending": 256,
        "nice": 0,
        "rtprio": 0,
    }
    limited = ["/usr/bin/prlimit", *(f"--{name}={value}" for name, value in most.items())]
    return [*limited, "/usr/bin/timeout", "--signal=KILL", str(limits.seconds + 1)]


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
        message = excerpt(done.stderr.decode(errors="replace"), 200) or f"exit code {done.returncode}"
        raise UserError(
            f"code cannot be isolated here ({message}): allow user namespaces and install bubblewrap 0.8 or "
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


@contextmanager
def readable(content: bytes) -> Generator[int]:
    """A descriptor from which it can be read, and through which nothing can be changed. It lives in memory."""
    with open(os.memfd_create("input"), "wb", buffering=0) as file:
        left = memoryview(content)
        while left:
            left = left[file.write(left) :]
        descriptor = os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
