"""A process that is killed at its nth operation on files: what lies on the disk then is what SIGKILL leaves."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

OPERATIONS = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink"}
"""Names of the events of Python's audit that change or open files."""
KILLED, ENDED, FAILED = 9, 0, 1


def forked(folder: Path, operation: int, work: Callable[[], object]) -> bool:
    """Do the work in a forked process that dies before its nth operation below a folder; whether it came to its end.

    Counted are the events of the audit and each fsync. AssertionError if the work raised.
    """
    child = os.fork()
    if child == 0:
        _die_at(folder, operation)
        try:
            work()
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode())
            os._exit(FAILED)
        os._exit(ENDED)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (KILLED, ENDED), f"the work failed at operation {operation}"
    return code == ENDED


def _die_at(folder: Path, operation: int) -> None:
    done, place = count(1), str(folder.resolve())

    def step() -> None:
        if next(done) == operation:
            os._exit(KILLED)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in OPERATIONS or not isinstance(path := arguments[0], str | bytes | os.PathLike):
            return
        if os.path.abspath(os.fsdecode(path)).startswith(place):
            step()

    os.fsync = lambda descriptor: step()  # the kernel lives on, so nothing needs to be on the disk
    sys.addaudithook(hook)
