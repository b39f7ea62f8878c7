"""The sandbox of untrusted code: the command line of bubblewrap, and a check whether it works on this machine.

In it there is a read-only Python with its standard library, an empty folder for files, and nothing else: no packages,
no /proc, no /home, no network, no environment. Process 1 of a sandbox waits for the code, with a clock of its own. The
kernel ends all others with it, however they hide; so a sandbox also ends where nobody is left to end it.

A filter of system calls (classic BPF, see seccomp(2)) covers what no other limit does: memory that no limit counts
(shared memory, extended attributes, pages of pipes and sockets, AIO, keys, message queues, huge pages), whatever is
shared with the machine (watches, leases and locks of files, times of devices, its page cache), and interfaces for
debuggers. These calls fail with EPERM; calls of newer kernels do not exist (ENOSYS). Of sockets there are only streams
within the sandbox (AF_UNIX), which asyncio and multiprocessing need.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from glob import glob
from struct import pack

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
        for name, content in (("code", code), ("filter", filter_program())):
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


_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Where its numbers stand below, and the kernel's number of the machine itself."""

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
"""Numbers of the calls that fail. A machine may lack a call."""

_LATER = 442
"""Calls from here on are newer than what Python needs, with the same numbers on all machines (`mount_setattr` is the
first; Landlock, `statmount` and more `setxattr` follow)."""
_X32 = 0x40000000
"""Numbers from here on are the same calls in x86-64's second numbering."""

_ALLOW, _DENY, _KILL, _UNKNOWN, _GRANT = 0x7FFF0000, 0x00050001, 0x80000000, 0x00050026, 0x00050000
"""What becomes of a call: it is made, fails (EPERM), ends the process, is unknown (ENOSYS), succeeds without effect."""
_NO_SOCKET, _UNSUPPORTED = 0x00050058, 0x0005005F
"""It fails as on an older kernel (ENOTSOCK), or as on another file system (EOPNOTSUPP): Python then copies itself."""


@dataclass(frozen=True, slots=True)
class _Argument:
    """What becomes of a call depends on an argument."""

    number: int
    """Which one, from 0."""
    mask: int
    """Its bits that count."""
    values: Mapping[int, _Verdict]
    """What becomes of a call with such a value."""
    others: _Verdict
    """What becomes of any other call."""


_Verdict = int | _Argument

_STREAM = _Argument(0, 0xFFFFFFFF, {1: _Argument(1, 0xF, {1: _ALLOW}, _DENY)}, _DENY)
"""AF_UNIX and SOCK_STREAM: a buffer for each end, which a look at the sockets finds. Datagrams outlive their senders,
other families hold memory in buffers of their own, and vsock reaches the host of a virtual machine."""

_OTHERS: dict[str, tuple[tuple[int, int], _Verdict]] = {
    # Files of a sandbox lie in memory, and those of the machine must not make its disks write. SQLite needs them.
    "fsync": ((74, 82), _GRANT),
    "fdatasync": ((75, 83), _GRANT),
    "sync_file_range": ((277, 84), _GRANT),
    # One byte of it holds a page, which then is no file's any more.
    "sendfile": ((40, 71), _NO_SOCKET),
    # Both flags ask for memory that stays held after its pages are out of sight.
    # Huge pages (0x40000) are reserved for others, and no limit of memory counts them.
    "mmap": ((9, 222), _Argument(3, 0x40021, dict.fromkeys((0x21, 0x40020, 0x40021), _DENY), _ALLOW)),
    "socket": ((41, 198), _STREAM),
    "socketpair": ((53, 199), _STREAM),
    "setsockopt": ((54, 208), _Argument(2, 0xFFFFFFFF, {2: _ALLOW}, _DENY)),  # SO_REUSEADDR, for multiprocessing
    # Those of terminals and descriptors, which have a T in the second byte. Others set flags of files, which stay.
    "ioctl": ((16, 29), _Argument(1, 0xFF00, {0x5400: _ALLOW}, _UNSUPPORTED)),
    "prctl": ((157, 167), _Argument(0, 0xFFFFFFFF, {1: _DENY, 62: _DENY}, _ALLOW)),  # PR_SET_PDEATHSIG, PR_SCHED_CORE
    # Whoever may write to a file may set its times to now: those of /dev/null, which all sandboxes see. Other times are
    # said to be set, because copies of files need that; only now is refused: `Path.touch` then makes the file itself.
    "utimensat": ((280, 88), _Argument(2, 0xFFFFFFFF, {0: _DENY}, _GRANT)),
    # F_SETLEASE, F_NOTIFY, F_SETPIPE_SZ and both F_SET_RW_HINT fail. F_SETLK, F_SETLKW and those of open files are said
    # to succeed: SQLite needs them for its own files, and all sandboxes and the host see a lock on a library.
    "fcntl": ((72, 25), _Argument(
        1, 0xFFFFFFFF,
        {**dict.fromkeys((1024, 1026, 1031, 1036, 1038), _DENY), **dict.fromkeys((6, 7, 37, 38), _GRANT)}, _ALLOW,
    )),
}  # fmt: skip
"""Calls of which neither all are made nor all are denied: numbers, and what becomes of them."""

_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
"""Steps of a filter. A test is followed by how many steps to go over if it holds, and if it does not."""
_NUMBER, _ARCHITECTURE, _FIRST = 0, 4, 16
"""Where the kernel keeps the call's number, the machine's, and the lower half of the first of its 8-byte arguments."""

_Step = tuple[int, int, int, int]


def filter_program(machine: str = platform.machine()) -> bytes:
    """The filter for that machine, as the kernel reads it; UserError if its numbers are not known."""
    if machine not in _MACHINES:
        raise UserError(f"no sandbox for {machine} processors: name the URL of a SandboxFusion server")
    column, architecture = _MACHINES[machine]
    return b"".join(pack("=HBBI", *step) for step in _steps(column, architecture))


def _steps(column: int, architecture: int) -> Iterator[_Step]:
    yield from [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL)]
    yield from [(_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _DENY)]
    yield from [(_AT_LEAST, 0, 1, _LATER), (_RETURN, 0, 0, _UNKNOWN)]
    for numbers in _DENIED.values():
        if (number := numbers[column]) is not None:
            yield from _returns({number: _DENY})
    for numbers, verdict in _OTHERS.values():
        yield from _returns({numbers[column]: verdict})
    yield _RETURN, 0, 0, _ALLOW


def _returns(values: Mapping[int, _Verdict]) -> Iterator[_Step]:
    """For each value of what was loaded, what becomes of the call."""
    for value, verdict in values.items():
        steps = list(_judged(verdict))
        yield from [(_EQUAL, 0, len(steps), value), *steps]


def _judged(verdict: _Verdict) -> Iterator[_Step]:
    """What becomes of the call, whatever was loaded. These steps come to an end of the filter."""
    if isinstance(verdict, int):
        yield _RETURN, 0, 0, verdict
        return
    yield from [(_LOAD, 0, 0, _FIRST + 8 * verdict.number), (_AND, 0, 0, verdict.mask)]
    yield from [*_returns(verdict.values), *_judged(verdict.others)]
