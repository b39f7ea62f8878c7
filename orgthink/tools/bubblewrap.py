"""The sandbox of untrusted code: the command line of bubblewrap, and a check whether it works on this machine.

The sandbox has a read-only Python with its standard library and named packages, and an empty folder for files: no other
packages, no /proc, no /home, no network, none of our environment. Its process 1 has a clock of its own, and the kernel
kills all other processes with it: a sandbox ends even if this process was killed.

A filter of system calls (classic BPF, see seccomp(2)) denies calls that use memory outside the limits, change or lock
what the sandbox shares with the machine, or serve debuggers. They fail with EPERM, newer calls with ENOSYS.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from glob import glob
from struct import pack

from orgthink.tools.packages import USUAL, modules
from orgthink.util.errors import UserError, require_above_zero, require_at_least
from orgthink.util.terminal import excerpt

UNPRIVILEGED = "65534"
"""User and group inside the sandbox; outside too if root starts it: root is exempt from the limit on processes."""

_PACKAGES = "/python/packages"
"""Folder of the packages in the sandbox."""

_WAY_OUT = "install bubblewrap 0.8 or newer (apt-get install bubblewrap), or name the URL of a SandboxFusion server"

STARTED = b"\n"
"""How the output begins if the sandbox could be made: written before the program runs, which cannot take it back."""


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Limits of the code in a sandbox."""

    seconds: float = 30.0
    """Wall-clock limit of a program, with the start of its sandbox. The caller stops the sandbox; otherwise it ends
    itself a second later."""
    memory_mb: int = 1024
    """MiB of memory of each process, and with control groups of all together."""
    processes: int = 16
    """Most processes and threads at once."""
    file_mb: int = 16
    """MiB of all files together."""
    packages: tuple[str, ...] = USUAL
    """Packages that the code may import, with those that they need: in bubblewrap those of them that are installed
    here; at a server, those that models are told of."""

    def __post_init__(self) -> None:
        require_above_zero(self, "seconds")
        require_at_least(1, self, "memory_mb", "processes", "file_mb")


def command(limits: SandboxLimits, code: int, filter: int) -> list[str]:
    """The command to start, without environment. Its exit code is that of the code (128 + n for signal n).

    `code` and `filter` are inherited file descriptors of the program and of the filter of system calls.
    """
    python = f"/python/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    mounts = [
        "--unshare-all", "--unshare-user", "--disable-userns",
        "--uid", UNPRIVILEGED, "--gid", UNPRIVILEGED, "--cap-drop", "ALL",
        "--die-with-parent", "--new-session", "--as-pid-1", "--hostname", "sandbox", "--seccomp", str(filter),
        "--setenv", "LD_LIBRARY_PATH", "/python/lib", "--setenv", "HOME", "/tmp", "--setenv", "PATH", "/usr/bin",
        "--setenv", "PYTHONPATH", _PACKAGES, "--setenv", "OMP_NUM_THREADS", "1",  # a thread takes 40 MiB of addresses
    ]  # fmt: skip
    for name in ("null", "full", "random", "urandom"):  # not zero: mapped, it is uncounted memory
        mounts += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    mounts += ["--symlink", "/tmp", "/dev/shm", "--perms", "0444", "--file", str(code), "/code.py"]
    mounts += ["--size", str(limits.file_mb << 20), "--tmpfs", "/tmp", "--chdir", "/tmp", "--remount-ro", "/"]
    library = _python(limits.packages)
    program = [*_limited(limits), python, "-P", "-s", "-S", "-B", "-X", "utf8", "/code.py"]
    if os.geteuid():
        return [_bubblewrap(), *_system(), *library, *mounts, "--", *program]
    return [
        *_as_unprivileged(library),
        "/bwrap",
        *_system(),
        "--ro-bind",
        "/python",
        "/python",
        *mounts,
        "--",
        *program,
    ]


def _as_unprivileged(library: list[str]) -> list[str]:
    """Root enters a sandbox with only the system in it, and there becomes an unprivileged user.

    That user may not be able to read the path to Python. Process 1 is a shell that stays root, because bubblewrap could
    not kill the processes of another user.
    """
    outer = ["--unshare-pid", "--as-pid-1", "--die-with-parent", "--tmpfs", "/tmp"]
    outer += ["--ro-bind", _bubblewrap(), "/bwrap"]
    outer += ["--bind", "/proc", "/proc", "--dev-bind", "/dev", "/dev"]
    change_user = ["setpriv", "--reuid", UNPRIVILEGED, "--regid", UNPRIVILEGED, "--clear-groups"]
    return [_bubblewrap(), *_system(), *library, *outer, "--", "/bin/sh", "-c", '"$@"; exit $?', "sh", *change_user]


def _system() -> list[str]:
    """Mounts libraries and programs of the system read-only, without Python packages."""
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


def _python(packages: tuple[str, ...]) -> list[str]:
    """Mounts the interpreter, its standard library, its shared libraries and these packages read-only.

    Other packages are hidden: this one would show a program how it is graded.
    """
    base = sys.base_prefix
    library = os.path.relpath(sysconfig.get_path("stdlib"), base)
    interpreter = f"bin/python{sys.version_info.major}.{sys.version_info.minor}"
    visible = []
    # Made here, because otherwise only root may read them.
    for folder in ("", "/bin", "/lib", "/packages", f"/{os.path.dirname(library)}"):
        visible += ["--dir", f"/python{folder}"]
    for part in (interpreter, library):
        visible += ["--ro-bind", os.path.join(base, part), f"/python/{part}"]
    for folder in glob(os.path.join(base, library, "*-packages")):
        visible += _emptied(f"/python/{library}/{os.path.basename(folder)}")
    for file in glob(os.path.join(base, "lib", "*.so*")) if base != "/usr" else ():
        visible += ["--ro-bind", file, f"/python/lib/{os.path.basename(file)}"]
    for module in sorted({module for package in packages for module in modules(package)}):
        visible += ["--ro-bind", str(module), f"{_PACKAGES}/{module.name}"]
    return visible


def _emptied(folder: str) -> list[str]:
    """Mounts an empty read-only folder."""
    return ["--perms", "0555", "--tmpfs", folder, "--remount-ro", folder]


def _limited(limits: SandboxLimits) -> list[str]:
    """Sets limits that the code cannot raise, and starts `timeout` as process 1, which writes `STARTED`."""
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
    limited = ["/usr/bin/prlimit", *(f"--{name}={value}" for name, value in most.items()), "/usr/bin/timeout"]
    return [*limited, "--signal=KILL", str(limits.seconds + 1), "/bin/sh", "-c", 'echo; exec "$@"', "sh"]


def _bubblewrap() -> str:
    """Path of bubblewrap; UserError if it is not installed."""
    found = shutil.which("bwrap")
    if found is None:
        raise UserError(f"code runs in bubblewrap only, which is not installed: {_WAY_OUT}")
    return os.path.realpath(found)


@cache
def check() -> None:
    """Make a sandbox once; UserError with bubblewrap's message if that fails."""
    with files(b"") as (code, filter):
        made = command(SandboxLimits(), code, filter)
        try:
            done = subprocess.run(
                made, env={}, pass_fds=(code, filter), stdin=subprocess.DEVNULL, capture_output=True, timeout=30
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UserError(f"code cannot be isolated here ({error}): {_WAY_OUT}") from error
    if done.returncode:
        message = excerpt(done.stderr.decode(errors="replace"), 200) or f"exit code {done.returncode}"
        raise UserError(f"code cannot be isolated here ({message}): allow user namespaces, {_WAY_OUT}")


@contextmanager
def files(code: bytes) -> Generator[tuple[int, int]]:
    """In-memory file descriptors of the program and of the filter, for `command`."""
    with readable(code) as program, readable(filter_program()) as filter:
        yield program, filter


@contextmanager
def readable(content: bytes) -> Generator[int]:
    """A read-only file descriptor of that content, in memory."""
    with open(os.memfd_create("input"), "wb") as file:
        file.write(content)
        file.flush()
        descriptor = os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Column of its system call numbers below, and the kernel's number of the machine."""

_DENIED = {
    "shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180), "memfd_create": (319, 279),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "vmsplice": (278, 75),
    "splice": (275, 76), "tee": (276, 77), "sendmsg": (46, 211), "sendmmsg": (307, 269),
    "io_setup": (206, 0), "io_uring_setup": (425, 425), "userfaultfd": (323, 282),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "inotify_init": (253, None), "inotify_init1": (294, 26), "fanotify_init": (300, 262), "flock": (73, 32),
    "sync": (162, 81), "syncfs": (306, 267), "fadvise64": (221, 223), "readahead": (187, 213),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
    "ioprio_set": (251, 30), "sched_setattr": (314, 274),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "syslog": (103, 116),
    "pidfd_getfd": (438, 438), "perf_event_open": (298, 241), "bpf": (321, 280),
}  # fmt: skip
"""Numbers of the calls that always fail; `None` where a machine does not have the call."""

_NEWER = 442
"""Calls from this number on are newer than what Python needs; all machines share these numbers."""
_X32 = 0x40000000
"""From this number on, x86-64 has a second numbering of the same calls."""

_ALLOW, _DENY, _KILL, _UNKNOWN, _SUCCEED = 0x7FFF0000, 0x00050001, 0x80000000, 0x00050026, 0x00050000
"""Verdicts: run the call, fail with EPERM, kill the process, fail with ENOSYS, do nothing and report success."""
_NO_SOCKET, _UNSUPPORTED = 0x00050058, 0x0005005F
"""Errors ENOTSOCK and EOPNOTSUPP, at which Python falls back to copying."""
_ALL = 0xFFFFFFFF

_LOCKS = {**dict.fromkeys((1024, 1026, 1031, 1036, 1038), _DENY), **dict.fromkeys((6, 7, 37, 38), _SUCCEED)}
"""Commands of fcntl: leases, watches, pipe sizes and hints fail. Locks succeed without effect: SQLite needs them."""

_BY_ARGUMENT = {
    "fsync": ((74, 82), 0, 0, {}, _SUCCEED),
    "fdatasync": ((75, 83), 0, 0, {}, _SUCCEED),
    "sync_file_range": ((277, 84), 0, 0, {}, _SUCCEED),
    "sendfile": ((40, 71), 0, 0, {}, _NO_SOCKET),
    "mmap": ((9, 222), 3, 0x40021, dict.fromkeys((0x21, 0x40020, 0x40021), _DENY), _ALLOW),  # shared or huge pages
    "socket": ((41, 198), 0, _ALL, {1: _ALLOW}, _DENY),  # AF_UNIX
    "socketpair": ((53, 199), 0, _ALL, {1: _ALLOW}, _DENY),
    "setsockopt": ((54, 208), 2, _ALL, {2: _ALLOW}, _DENY),  # SO_REUSEADDR, for multiprocessing
    "ioctl": ((16, 29), 1, 0xFF00, {0x5400: _ALLOW}, _UNSUPPORTED),  # only those of terminals and descriptors
    "prctl": ((157, 167), 0, _ALL, {1: _DENY, 62: _DENY}, _ALLOW),  # PR_SET_PDEATHSIG, PR_SCHED_CORE
    "utimensat": ((280, 88), 2, _ALL, {0: _DENY}, _SUCCEED),  # devices are shared; copies of files set times
    "fcntl": ((72, 25), 1, _ALL, _LOCKS, _ALLOW),
}
"""Numbers of a call, the deciding argument, its mask, verdicts by its value, and the verdict for other values."""

_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
"""Instructions. A comparison has two numbers of instructions to skip: if it holds, and if it does not."""
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Offsets of the call's number, of the machine's number and of the 8-byte arguments."""

_Instruction = tuple[int, int, int, int]


def filter_program(machine: str = platform.machine()) -> bytes:
    """The filter for that machine as the kernel reads it. UserError for an unsupported machine."""
    if machine not in _MACHINES:
        raise UserError(f"no sandbox for {machine} processors: name the URL of a SandboxFusion server")
    column, architecture = _MACHINES[machine]
    return b"".join(pack("=HBBI", *step) for step in _instructions(column, architecture))


def _instructions(column: int, architecture: int) -> Iterator[_Instruction]:
    yield from [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL)]
    yield from [(_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _DENY)]
    yield from [(_AT_LEAST, 0, 1, _NEWER), (_RETURN, 0, 0, _UNKNOWN)]
    for numbers in _DENIED.values():
        if (number := numbers[column]) is not None:
            yield from [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _DENY)]
    for numbers, argument, mask, verdicts, otherwise in _BY_ARGUMENT.values():
        yield _EQUAL, 0, 3 + 2 * len(verdicts), numbers[column]
        yield from [(_LOAD, 0, 0, _ARGUMENTS + 8 * argument), (_AND, 0, 0, mask)]
        for value, verdict in verdicts.items():
            yield from [(_EQUAL, 0, 1, value), (_RETURN, 0, 0, verdict)]
        yield _RETURN, 0, 0, otherwise
    yield _RETURN, 0, 0, _ALLOW
