"""How far a run is, on standard error: a bar on a terminal, a line every so often elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from orgthink.record.episode import Episode
from orgthink.record.failures import failure_message
from orgthink.util.pace import Pace
from orgthink.util.terminal import clean, show

if TYPE_CHECKING:
    from rich.console import Console

LINES = 20
"""About so many lines a run, where there is no terminal."""
HEARTBEAT = 60.0
"""Seconds between lines that a run goes on, where there is no terminal."""


@contextmanager
def progress(total: int, *, live: bool = True) -> Iterator[Callable[[Episode, int], None]]:
    """Gives a function to call with every episode that ends, and with how many then have.

    Without `live` there are lines on a terminal too, which leave what is typed alone.
    """
    from rich.console import Console

    console = Console(stderr=True)
    with _bar(console, total) if live and console.is_terminal else _lines(total) as ended:
        yield ended


@contextmanager
def _bar(console: Console, total: int) -> Iterator[Callable[[Episode, int], None]]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("episodes", total=total)
        yield lambda episode, done: bar.update(task, completed=done, description=clean(describe(episode)))


@contextmanager
def _lines(total: int) -> Iterator[Callable[[Episode, int], None]]:
    every, pace = max(1, total // LINES), Pace(total)
    with heartbeat(lambda: f"{pace.done}/{total}{pace.quiet}"):

        def ended(episode: Episode, done: int) -> None:
            pace.advance(done)
            if done % every == 0 or done == total:
                show(f"{done}/{total}  {describe(episode)}{pace.left}", error=True)

        yield ended


@contextmanager
def heartbeat(line: Callable[[], str], every: float = HEARTBEAT) -> Iterator[None]:
    """Print a line on standard error every so often, while something else may block this thread."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(every):
            show(line(), error=True)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def describe(episode: Episode) -> str:
    """What came of an episode, in a few words."""
    grade = episode.grade
    result = f"{grade.correct} of {grade.required}" if grade is not None else f"failed: {failure_message(episode)}"
    return f"{episode.organization}  {episode.problem.id}  {result}"
