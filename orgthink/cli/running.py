"""What commands share while something runs: notes, progress, Ctrl-C, exit codes, and `--resume`."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from orgthink.cli import INTERRUPTED, SPENT
from orgthink.evaluation.run import Bound
from orgthink.measure.usage import Price
from orgthink.record.episode import Episode, Status
from orgthink.record.folder import RunFolder
from orgthink.training.interrupt import interrupt
from orgthink.util.errors import UserError
from orgthink.util.settings import require_known
from orgthink.util.terminal import show

T = TypeVar("T")


def note(*lines: str | None) -> None:
    """Print the lines that are not empty, on standard error."""
    for line in filter(None, lines):
        show(f"orgthink: {line}", error=True)


def price_note(models: Iterable[str | None], prices: Mapping[str, Price]) -> str | None:
    """Models without a price, if others have one."""
    unknown = [model for model in dict.fromkeys(models) if model is not None and model not in prices]
    return f"no price of {', '.join(unknown)}: dollars are unknown" if prices and unknown else None


def return_notes(episodes: Iterable[Episode]) -> list[str]:
    """Roles no reply of which has what the role returns."""
    ends: defaultdict[str, Counter[Status]] = defaultdict(Counter)
    for trace in (trace for episode in episodes for trace in episode.traces if trace.model is not None):
        ends[trace.role][trace.status] += 1
    return [
        f"{role}: none of {found.total()} replies has what this role returns; orgthink view RUN --transcript shows them"
        for role, found in ends.items()
        if found.keys() <= {Status.NO_RETURN, Status.TRUNCATED} and found.total() > 1
    ]


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


async def interruptible(work: Callable[[threading.Event], Coroutine[object, object, T]]) -> T | None:
    """Do the work. The first Ctrl-C sets the event that the work gets, the second cancels the work: then the result is
    `None`. KeyboardInterrupt at the third, which also ends work that blocks the loop. The last two are asyncio's."""
    with interrupt(lambda: "running work") as stop:
        try:
            return await work(stop)
        except asyncio.CancelledError:
            return None


@contextmanager
def stoppable() -> Iterator[None]:
    """Around work that may block the loop for long and can be given up, such as opening a model: Ctrl-C ends it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
