"""A filter of system calls, for what no other limit of a sandbox covers (classic BPF, see seccomp(2)).

Shared memory that no file system limits, io_uring, keys, the kernel's log, its interfaces for debuggers and profilers,
and families of sockets that no network namespace holds back (vsock reaches the host of a virtual machine). They fail
with EPERM; everything else is left to namespaces and resource limits.
"""

from __future__ import annotations

import platform
from struct import pack

from orgthink.errors import UserError

_DENIED: dict[str, tuple[int, int, int, dict[str, int]]] = {
    "x86_64": (0xC000003E, 41, 9, {
        "shmget": 29, "semget": 64, "msgget": 68, "ptrace": 101, "syslog": 103, "add_key": 248, "request_key": 249,
        "keyctl": 250, "perf_event_open": 298, "process_vm_readv": 310, "process_vm_writev": 311, "memfd_create": 319,
        "bpf": 321, "userfaultfd": 323, "io_uring_setup": 425, "memfd_secret": 447,
    }),
    "aarch64": (0xC00000B7, 198, 222, {
        "shmget": 194, "semget": 190, "msgget": 186, "ptrace": 117, "syslog": 116, "add_key": 217, "request_key": 218,
        "keyctl": 219, "perf_event_open": 241, "process_vm_readv": 270, "process_vm_writev": 271, "memfd_create": 279,
        "bpf": 280, "userfaultfd": 282, "io_uring_setup": 425, "memfd_secret": 447,
    }),
}  # fmt: skip
"""By machine: the kernel's number of it, those of `socket` and `mmap`, and those of the calls that fail."""

_FAMILIES = (1, 2, 10)
"""Sockets that can be made: of the room itself, and of the internet, of which there is none in it."""

_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
"""Steps of a filter. A test is followed by how many steps to go over if it holds, and if it does not."""
_NUMBER, _ARCHITECTURE, _FIRST, _FOURTH = 0, 4, 16, 40
"""Where the kernel keeps the call's number, the machine's, and arguments of the call (their lower halves)."""
_SHARED_ANONYMOUS = 0x21
"""Flags of `mmap`, the fourth argument: both ask for memory that stays held after its pages are out of sight."""
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050001, 0x80000000
"""What becomes of a call: it is made, it fails with EPERM, it ends the process."""
_X32 = 0x40000000
"""Numbers from here on are the same calls in x86-64's second numbering."""


def program(machine: str = platform.machine()) -> bytes:
    """The filter for that machine, as the kernel reads it; UserError if its numbers are not known."""
    if machine not in _DENIED:
        raise UserError(f"no sandbox for {machine} processors: name the URL of a SandboxFusion server")
    architecture, socket, mmap, calls = _DENIED[machine]
    numbers = sorted(calls.values())
    return b"".join(
        pack("=HBBI", *step)
        for step in [
            (_LOAD, 0, 0, _ARCHITECTURE),
            (_EQUAL, 1, 0, architecture),
            (_RETURN, 0, 0, _KILL),
            (_LOAD, 0, 0, _NUMBER),
            (_AT_LEAST, 0, 1, _X32),
            (_RETURN, 0, 0, _REFUSE),
            *(step for number in numbers for step in [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE)]),
            (_EQUAL, 0, 5, mmap),
            (_LOAD, 0, 0, _FOURTH),
            (_AND, 0, 0, _SHARED_ANONYMOUS),
            (_EQUAL, 0, 1, _SHARED_ANONYMOUS),
            (_RETURN, 0, 0, _REFUSE),
            (_RETURN, 0, 0, _ALLOW),
            (_EQUAL, 1, 0, socket),
            (_RETURN, 0, 0, _ALLOW),
            (_LOAD, 0, 0, _FIRST),
            *(step for family in _FAMILIES for step in [(_EQUAL, 0, 1, family), (_RETURN, 0, 0, _ALLOW)]),
            (_RETURN, 0, 0, _REFUSE),
        ]
    )
