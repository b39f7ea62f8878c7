"""Runs inside a sandbox: a program under test, once for each input that comes through a socket.

This file is the sandbox's `/code.py`. It imports the standard library only, and nothing that is right to print is ever
sent to it: a program that takes over this process has gained nothing, for its outputs are compared outside.
"""

from __future__ import annotations

import builtins
import ctypes
import fcntl
import gc
import json
import os
import resource
import signal
import socket
import sys
from contextlib import suppress
from types import ModuleType
from typing import Any

STARRED = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json", "builtins", "typing"),
)
"""Modules whose names every program finds defined, a later one's before an earlier one's: LiveCodeBench's."""
NAMED = STARRED[:16]
"""Those that it finds under their own names too."""
RECURSION, DIGITS = 50_000, 50_000
"""Levels of recursion, and digits of a whole number that is printed: LiveCodeBench's as well."""
READY = b"ready"
"""What the supervisor says first."""
_LONGEST = 4096
"""Bytes of a message."""
_own: dict[str, ModuleType | None] = {}
"""Modules whose names a program has taken: they live on."""
_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2)."""
_LIMITS = 16
"""RLIM_NLIMITS of getrlimit(2)."""


def scope(name: str) -> ModuleType:
    """The module that a program becomes, with the names that it may expect."""
    module, _own[name] = ModuleType(name), sys.modules.get(name)
    sys.modules[name] = module
    lines = [f"from {each} import *" for each in STARRED] + [f"import {each}" for each in NAMED]
    exec("\n".join(lines), module.__dict__)
    module.__dict__["__name__"] = name  # `from` leaves it alone, but a program may not rely on that
    builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]  # `site` defines them otherwise
    sys.setrecursionlimit(RECURSION)
    if hasattr(sys, "set_int_max_str_digits"):  # a server's Python may be older
        sys.set_int_max_str_digits(DIGITS)
    return module


def execute(source: str, module: ModuleType) -> None:
    """Run a program to its end. To exit is to end well, with whatever code: only an exception is a crash."""
    with suppress(SystemExit):
        exec(compile(source, "<program>", "exec"), module.__dict__)


def returned(source: str, module: ModuleType, function: str, lines: str) -> str:
    """What a function of the program, or a method of its class `Solution`, returns: JSON of plain data.

    Each line of `lines` is an argument in JSON.
    """
    arguments = [json.loads(line) for line in lines.split("\n")]
    execute(source, module)
    owner = module.__dict__["Solution"]() if "class Solution" in source else module
    return json.dumps(plain(getattr(owner, function)(*arguments), top=True))


def plain(value: Any, *, top: bool = False) -> Any:
    """Lists, numbers, texts, truth values and `None` as they are; a dictionary as `{"items": pairs}`.

    A tuple is a list if it is all that was returned. Everything else, which equals no value of JSON, is `{}`.
    """
    if isinstance(value, list) or (top and isinstance(value, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {"items": [[plain(key), plain(each)] for key, each in value.items()]}
    return value if value is None or isinstance(value, bool | int | float | str) else {}


def supervise() -> None:
    """Run the program of the first message on the inputs of the others, each in a process of its own."""
    control = socket.socket(fileno=0)
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)  # what a test leaves behind becomes ours
    control.send(READY)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # no reader is left
    name, (program,), _, _ = socket.recv_fds(control, _LONGEST, 1)
    source, function = _read(program), name.decode()[1:] or None
    module = scope("solution" if function else "__main__")
    gc.freeze()  # a child that collects garbage would copy all of this
    own, processors = _inherited(), os.sched_getaffinity(0)
    while descriptors := socket.recv_fds(control, _LONGEST, 2)[1]:
        child = os.fork()
        if not child:
            control.detach()
            test, output = descriptors
            return _test(test, output, source, module, function)
        for descriptor in descriptors:
            os.close(descriptor)
        _, status = os.waitpid(child, 0)
        _clear()
        os.sched_setaffinity(0, processors)
        if os.listdir("/tmp") or _inherited() != own:
            return  # without a sandbox there is no next test to find it
        control.send(str(os.waitstatus_to_exitcode(status)).encode())


def _test(test: int, output: int, source: str, module: ModuleType, function: str | None) -> None:
    """Run the program on a test, in a process that has nothing of the supervisor's and ends as any other."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    if function is None:
        _descriptors(test, output, null)
        return execute(source, module)
    lines = _read(test)
    _descriptors(null, null, null, output)
    result = returned(source, module, function, lines)
    with open(3, "w", encoding="utf-8") as file:
        file.write(result)


def _descriptors(*wanted: int) -> None:
    """Make these the only ones, numbered from 0."""
    copies = [fcntl.fcntl(each, fcntl.F_DUPFD, 32) for each in wanted]
    for number, copy in enumerate(copies):
        os.dup2(copy, number)
    os.closerange(len(copies), 64)


def _clear() -> None:
    """End all that the test has left: its processes and its files."""
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    os.chmod("/tmp", 0o755)
    if os.listdir("/tmp"):  # the folder itself cannot be removed; folders may nest deeper than files can be open
        # A folder may lack the rights to empty it. Neither program follows a link, and no process is left to race them.
        os.spawnv(os.P_WAIT, "/usr/bin/chmod", ["chmod", "-R", "u+rwX", "/tmp"])
        os.spawnv(os.P_WAIT, "/usr/bin/rm", ["rm", "-rf", "/tmp"])


def _inherited() -> tuple[Any, ...]:
    """What a test gets from the supervisor, and can change of it for good."""
    limits = [resource.getrlimit(each) for each in range(_LIMITS)]
    return limits, os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)


def _read(descriptor: int) -> str:
    """The whole text."""
    with open(descriptor, encoding="utf-8", errors="surrogatepass", newline="") as file:
        return file.read()
