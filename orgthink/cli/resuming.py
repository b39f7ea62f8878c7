"""Runs that stop and go on: Ctrl-C, exit codes, and `--resume`."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from orgthink.evaluation.spending import Bound
from orgthink.record.folder import RunFolder
from orgthink.training.interrupt import answer
from orgthink.util.errors import UserError
from orgthink.util.settings import require_known
from orgthink.util.terminal import show

T = TypeVar("T")

INTERRUPTED = 130
"""Exit code after Ctrl-C."""

SPENT = 3
"""Exit code of a run that reached a limit on its spending."""


def note(*lines: str | None) -> None:
    """Print the lines that are not empty, on standard error."""
    for line in filter(None, lines):
        show(f"orgthink: {line}", error=True)


def resumed(command: Any, **others: Any) -> RunFolder:
    """The folder that a command resumes. UserError for any other option, except these fields."""
    if command != type(command)(resume=command.resume, **others):
        raise UserError("--resume takes everything else from the folder: give it alone")
    return RunFolder.open(command.resume)


def settings_of(folder: RunFolder, kind: str, cls: type[T]) -> T:
    """The settings of a run. Notes an unknown one, which another version may have written."""
    settings = folder.settings(kind, cls)
    try:
        require_known(cls, folder.config["settings"])
    except UserError as error:
        note(f"{folder.path / 'config.json'}: {error}: it is ignored")
    return settings


def again(folder: RunFolder) -> str:
    """How to resume a run."""
    return f"go on with: orgthink {folder.config['kind']} --resume {folder.path}"


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """Around imports of an extra of the package: UserError if it is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UserError(f"this command needs {error.name}: pip install 'orgthink[{extra}]'") from error


@contextmanager
def written(folder: RunFolder) -> Iterator[None]:
    """Around code that writes to a run folder: an OSError becomes one line that says how to go on."""
    try:
        yield
    except OSError as error:
        if error.filename is not None and not Path(os.fsdecode(error.filename)).is_relative_to(folder.path):
            raise
        why = f"{folder.path} cannot be written: {error.strerror or error}"
        raise UserError(f"{why}; what was written is whole; {again(folder)}") from error


def exit_code(
    folder: RunFolder, done: int, total: int, things: str, failed: int, failure: str, bound: Bound | None = None
) -> int:
    """Print what is missing; return 0, 1 if something failed, 3 at a limit on spending, 130 after Ctrl-C.

    `things` are the units of work, such as `episodes`; `failure` says which failed and why.
    """
    if done < total and bound is not None:
        note(f"stopped after {done} of {total} {things}: {bound}; {again(folder)} {bound.option} MORE")
        return SPENT
    if done < total:
        note(f"stopped after {done} of {total} {things}; {again(folder)}")
        return INTERRUPTED
    if failed:
        note(f"{failed} of {total} {failure}; {again(folder)}")
    return int(bool(failed))


async def interruptible(work: Callable[[asyncio.Event], Coroutine[object, object, T]]) -> T | None:
    """Do the work. The first Ctrl-C sets the event that the work gets, the second cancels the work: then the result is
    `None`. KeyboardInterrupt at the third, which also ends work that blocks the loop.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    task = loop.create_task(work(stop))
    times = 0

    def interrupt(number: int, frame: FrameType | None) -> None:
        """Runs at once, also while the loop is busy."""
        nonlocal times
        times += 1  # before the answer: the next Ctrl-C may follow it at once
        if times > 2:
            raise KeyboardInterrupt
        loop.call_soon_threadsafe(stop.set if times == 1 else task.cancel)
        if times == 1:
            answer("orgthink: finishing running work; Ctrl-C again stops now")

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        return await task
    except asyncio.CancelledError:
        if not task.cancelled():
            raise
        return None
    finally:
        if signal.getsignal(signal.SIGINT) is interrupt:  # not if the program has given up a task that never ends
            signal.signal(signal.SIGINT, before)


@contextmanager
def stoppable() -> Iterator[None]:
    """Around work that may block the loop for long and can be given up, such as opening a model: Ctrl-C ends it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
