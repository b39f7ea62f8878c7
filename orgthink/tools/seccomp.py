"""A filter of system calls, for what no other limit of a sandbox covers (classic BPF, see seccomp(2)).

Denied are: memory that no limit counts (shared and anonymous, extended attributes, `vmsplice`, AIO, io_uring, keys,
message queues, reserved huge pages), whatever is shared with the machine (watches, leases and locks of its files, times
of its devices, its page cache, its disks' queues), the kernel's interfaces for debuggers and profilers, and sockets
other than a sandbox's own. They fail with EPERM. Calls of newer kernels do not exist here (ENOSYS). Everything else is
left to namespaces and resource limits.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from struct import pack

from orgthink.errors import UserError

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Where its numbers stand below, and the kernel's number of the machine itself."""

_DENIED = {
    "shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180), "memfd_create": (319, 279),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "vmsplice": (278, 75),
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

_GRANTED = {"fsync": (74, 82), "fdatasync": (75, 83), "sync_file_range": (277, 84)}
"""Numbers of calls that are said to succeed. Files of a sandbox lie in memory, and those of the machine must not make
its disks write; SQLite needs them."""

_LATER = 442
"""Calls from here on are newer than what Python needs, with the same numbers on all machines (`mount_setattr` is the
first; Landlock, `statmount` and more `setxattr` follow)."""
_X32 = 0x40000000
"""Numbers from here on are the same calls in x86-64's second numbering."""

_ALLOW, _DENY, _KILL, _UNKNOWN, _GRANT = 0x7FFF0000, 0x00050001, 0x80000000, 0x00050026, 0x00050000
"""What becomes of a call: it is made, fails (EPERM), ends the process, is unknown (ENOSYS), succeeds without effect."""

_ARGUMENTS: dict[str, tuple[tuple[int, int], int, int, Mapping[int, int], int]] = {
    # Both flags ask for memory that stays held after its pages are out of sight.
    # Huge pages (0x40000) are reserved for others, and no limit of memory counts them.
    "mmap": ((9, 222), 3, 0x40021, dict.fromkeys((0x21, 0x40020, 0x40021), _DENY), _ALLOW),
    # AF_UNIX. The others hold memory in buffers, and vsock reaches the host of a virtual machine.
    "socket": ((41, 198), 0, 0xFFFFFFFF, {1: _ALLOW}, _DENY),
    "socketpair": ((53, 199), 0, 0xFFFFFFFF, {1: _ALLOW}, _DENY),
    "setsockopt": ((54, 208), 2, 0xFFFFFFFF, {7: _DENY}, _ALLOW),  # SO_SNDBUF
    "prctl": ((157, 167), 0, 0xFFFFFFFF, {1: _DENY, 62: _DENY}, _ALLOW),  # PR_SET_PDEATHSIG, PR_SCHED_CORE
    # Whoever may write to a file may set its times to now: those of /dev/null, which all sandboxes see. Other times are
    # said to be set, because copies of files need that; only now is refused: `Path.touch` then makes the file itself.
    "utimensat": ((280, 88), 2, 0xFFFFFFFF, {0: _DENY}, _GRANT),
    # F_SETLEASE, F_NOTIFY, F_SETPIPE_SZ and both F_SET_RW_HINT fail. F_SETLK, F_SETLKW and those of open files are said
    # to succeed: SQLite needs them for its own files, and all sandboxes and the host see a lock on a library.
    "fcntl": (
        (72, 25), 1, 0xFFFFFFFF,
        {**dict.fromkeys((1024, 1026, 1031, 1036, 1038), _DENY), **dict.fromkeys((6, 7, 37, 38), _GRANT)}, _ALLOW,
    ),
}  # fmt: skip
"""Calls that depend on an argument: numbers, which argument, a mask, what becomes of its values, and of others."""

_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
"""Steps of a filter. A test is followed by how many steps to go over if it holds, and if it does not."""
_NUMBER, _ARCHITECTURE, _FIRST = 0, 4, 16
"""Where the kernel keeps the call's number, the machine's, and the lower half of the first of its 8-byte arguments."""

_Step = tuple[int, int, int, int]


def program(machine: str = platform.machine()) -> bytes:
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
    for numbers in _GRANTED.values():
        yield from _returns({numbers[column]: _GRANT})
    for numbers, argument, mask, values, others in _ARGUMENTS.values():
        body = [(_LOAD, 0, 0, _FIRST + 8 * argument), (_AND, 0, 0, mask), *_returns(values), (_RETURN, 0, 0, others)]
        yield from [(_EQUAL, 0, len(body), numbers[column]), *body]
    yield _RETURN, 0, 0, _ALLOW


def _returns(values: Mapping[int, int]) -> Iterator[_Step]:
    """For each value of what was loaded, what becomes of the call."""
    for value, verdict in values.items():
        yield from [(_EQUAL, 0, 1, value), (_RETURN, 0, 0, verdict)]
