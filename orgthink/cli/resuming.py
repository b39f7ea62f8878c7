"""Runs that stop and go on: Ctrl-C, exit codes, and `--resume`."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any, TypeVar

from orgthink.cli.notes import note
from orgthink.evaluate.spending import Bound
from orgthink.record.folder import RunFolder
from orgthink.training.interrupt import answer
from orgthink.util.errors import UserError
from orgthink.util.settings import require_known

T = TypeVar("T")

INTERRUPTED = 130
"""Exit code after Ctrl-C."""

BLOCKED_SECONDS = 2.0
"""An event loop that does not run for this long after the second Ctrl-C is blocked."""

SPENT = 3
"""Exit code of a run that reached a limit on its spending."""


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
    """Do the work. The first Ctrl-C sets the event that the work gets, the second cancels it: then the result is
    `None`.

    KeyboardInterrupt at the third Ctrl-C, or if the loop does not take the second one because the work blocks it.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    task = loop.create_task(work(stop))
    times, taken = 0, threading.Event()
    second: SimpleQueue[None] = SimpleQueue()  # a handler may interrupt its own put
    threading.Thread(target=_insist, args=(second, taken), daemon=True).start()

    def cancel() -> None:
        taken.set()
        task.cancel()

    def interrupt(number: int, frame: FrameType | None) -> None:
        """Runs at once, also while the loop is busy."""
        nonlocal times
        times += 1  # before the answer: the next Ctrl-C may follow it at once
        if times == 1:
            loop.call_soon_threadsafe(stop.set)
            answer("orgthink: finishing running work; Ctrl-C again stops now")
        elif times == 2:
            loop.call_soon_threadsafe(cancel)
            second.put(None)
        else:
            raise KeyboardInterrupt

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
        taken.set()
        second.put(None)


def _insist(second: SimpleQueue[None], taken: threading.Event) -> None:
    """In a thread: a third Ctrl-C for the main one unless its loop takes the second one."""
    second.get()
    if not taken.wait(BLOCKED_SECONDS):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # it also ends a sleep


@contextmanager
def stoppable() -> Iterator[None]:
    """Around work that may block the loop for long and can be given up, such as opening a model: Ctrl-C ends it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
