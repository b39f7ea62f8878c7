"""Progress of a run: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from orgthink.record.episode import Episode
from orgthink.record.guard import failure_message
from orgthink.util.terminal import clean, show

LINES = 20
"""Lines of a run without a terminal, about."""
HEARTBEAT = 60.0
"""Seconds between lines that show that a run goes on."""

Advance = Callable[[int, str], None]
"""Called with the number of things that are done, and a text about the last one."""


@contextmanager
def progress(
    total: int, *, prefix: str = "", every: int | None = None, live: bool = True, error: bool = True
) -> Iterator[Advance]:
    """Yields the function that shows progress, on standard error or else on standard output.

    Without `live` there are lines on a terminal too, which do not disturb what a person types.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.progress import TimeRemainingColumn as Remaining

    console = Console(stderr=error)
    if live and console.is_terminal:
        text = TextColumn("{task.description}", markup=False)
        with Progress(
            BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), Remaining(), text, console=console
        ) as bar:
            task = bar.add_task("", total=total)
            yield lambda done, text: bar.update(task, completed=done, description=clean(text))
        return
    pace, every = Pace(total), every or max(1, total // LINES)

    def advance(done: int, text: str) -> None:
        pace.advance(done)
        if done % every == 0 or done == total:
            show(f"{prefix}{done}/{total}  {text}{pace.left}", error=error)

    with heartbeat(lambda: f"{prefix}{pace.done}/{total}{pace.quiet}"):
        yield advance


class Pace:
    """The progress of a run, and an estimate of the rest."""

    def __init__(self, total: int) -> None:
        self.done = 0
        self._total, self._before = total, -1
        self._began = self._last = time.monotonic()

    def advance(self, done: int) -> None:
        """Set what is done. What a resumed run had before does not count for the speed."""
        if self._before < 0:
            self._before = done - 1
        self.done, self._last = done, time.monotonic()

    @property
    def left(self) -> str:
        """The time that the rest will take; empty at the start and at the end."""
        if not 0 <= self._before < self.done < self._total:
            return ""
        each = (self._last - self._began) / (self.done - self._before)
        return f"  about {duration(each * (self._total - self.done))} left"

    @property
    def quiet(self) -> str:
        """The time since the last progress."""
        return f"  under way for {duration(time.monotonic() - self._last)}{self.left}"


def duration(seconds: float) -> str:
    """Seconds, minutes or hours as text."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


@contextmanager
def heartbeat(line: Callable[[], str], every: float = HEARTBEAT) -> Iterator[None]:
    """Print a line on standard error at intervals, while something else may block this thread."""
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
    """The result of an episode, in a few words."""
    grade = episode.grade
    result = f"{grade.correct} of {grade.required}" if grade is not None else f"failed: {failure_message(episode)}"
    return f"{episode.organization}  {episode.problem.id}  {result}"
