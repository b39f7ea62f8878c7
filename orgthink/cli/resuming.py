"""Runs that stop and go on: Ctrl-C, what is said at the end, and `--resume`."""

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
from orgthink.util.terminal import show

T = TypeVar("T")

INTERRUPTED = 130
"""Exit code after Ctrl-C."""

BLOCKED_SECONDS = 2.0
"""An event loop that does not run for so long after the second Ctrl-C is blocked."""

SPENT = 3
"""Exit code of a run that a bound on its spending stopped."""


def resumed(command: Any, **others: Any) -> RunFolder:
    """The folder that a command goes on with. UserError if it names anything else, but for these fields."""
    if command != type(command)(resume=command.resume, **others):
        raise UserError("--resume takes everything else from the folder: give it alone")
    return RunFolder.open(command.resume)


def settings_of(folder: RunFolder, kind: str, cls: type[T]) -> T:
    """The settings of a run, as `RunFolder.settings` has them.

    One that nothing here knows is named: a later version may have written it, or somebody by hand.
    """
    settings = folder.settings(kind, cls)
    try:
        require_known(cls, folder.config["settings"])
    except UserError as error:
        note(f"{folder.path / 'config.json'}: {error}: it is ignored")
    return settings


def again(folder: RunFolder) -> str:
    """How to go on with a run."""
    return f"go on with: orgthink {folder.config['kind']} --resume {folder.path}"


@contextmanager
def written(folder: RunFolder) -> Iterator[None]:
    """Around what writes to a run folder: an OSError becomes one line that says how to go on."""
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
    """Say what is missing, if anything is; 0, 1 if something failed, 3 at a bound, 130 after Ctrl-C.

    `things` are what was to be done, such as `episodes`; `failure` says which failed and why, `bound` which bound of
    the run is reached.
    """
    if done < total and bound is not None:
        why = f"stopped after {done} of {total} {things}: {bound}"
        show(f"orgthink: {why}; {again(folder)} {bound.option} MORE", error=True)
        return SPENT
    if done < total:
        show(f"orgthink: stopped after {done} of {total} {things}; {again(folder)}", error=True)
        return INTERRUPTED
    if failed:
        show(f"orgthink: {failed} of {total} {failure}; {again(folder)}", error=True)
    return int(bool(failed))


async def interruptible(work: Callable[[asyncio.Event], Coroutine[object, object, T]]) -> T | None:
    """Do the work. Ctrl-C sets the event it is given, a second one cancels it: then there is no result.

    KeyboardInterrupt at a third one, and where the loop does not take the second one: an organization that never waits
    blocks it.
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
            answer("orgthink: finishing what is under way; Ctrl-C again stops now")
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
        if signal.getsignal(signal.SIGINT) is interrupt:  # not where the program has gone on without what never ends
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
    """Around what may block the loop for long and can be given up, such as opening a model: Ctrl-C ends it now."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
