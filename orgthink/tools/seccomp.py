"""A filter of system calls, for what no other limit of a sandbox covers (classic BPF, see seccomp(2)).

Shared memory that belongs to no process and no file system, io_uring, keys, and the kernel's interfaces for debuggers
and profilers. They fail with EPERM; everything else is left to namespaces and resource limits.
"""

from __future__ import annotations

import platform
from struct import pack

from orgthink.errors import UserError

_DENIED: dict[str, tuple[int, dict[str, int]]] = {
    "x86_64": (0xC000003E, {
        "shmget": 29, "semget": 64, "msgget": 68, "ptrace": 101, "add_key": 248, "request_key": 249, "keyctl": 250,
        "perf_event_open": 298, "process_vm_readv": 310, "process_vm_writev": 311, "memfd_create": 319, "bpf": 321,
        "userfaultfd": 323, "io_uring_setup": 425, "memfd_secret": 447,
    }),
    "aarch64": (0xC00000B7, {
        "shmget": 194, "semget": 190, "msgget": 186, "ptrace": 117, "add_key": 217, "request_key": 218, "keyctl": 219,
        "perf_event_open": 241, "process_vm_readv": 270, "process_vm_writev": 271, "memfd_create": 279, "bpf": 280,
        "userfaultfd": 282, "io_uring_setup": 425, "memfd_secret": 447,
    }),
}  # fmt: skip
"""By machine: the kernel's number of it, and the numbers of the calls."""

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050001, 0x80000000
"""What becomes of a call: it is made, it fails with EPERM, it ends the process."""
_X32 = 0x40000000
"""Numbers from here on are the same calls in x86-64's second numbering."""


def program(machine: str = platform.machine()) -> bytes:
    """The filter for that machine, as the kernel reads it; UserError if its numbers are not known."""
    if machine not in _DENIED:
        raise UserError(f"no sandbox for {machine} processors: name the URL of a SandboxFusion server")
    architecture, calls = _DENIED[machine]
    numbers = sorted(calls.values())
    steps = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    # A jump goes over so many steps: from the tests to the refusal, which is the last one.
    steps.append((_AT_LEAST, len(numbers) + 1, 0, _X32))
    steps += [(_EQUAL, len(numbers) - at, 0, number) for at, number in enumerate(numbers)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]
    return b"".join(pack("=HBBI", *step) for step in steps)
