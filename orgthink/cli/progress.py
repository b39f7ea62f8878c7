"""Progress of a run: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from orgthink.record.episode import Episode
from orgthink.record.guard import failure_message
from orgthink.util.terminal import clean, show

LINES = 20
"""Lines of a run without a terminal, about."""

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
    began, before = time.monotonic(), total
    every = every or max(1, total // LINES)

    def advance(done: int, text: str) -> None:
        nonlocal before
        before = min(before, done - 1)  # what a resumed run had before does not count for the speed
        if done % every == 0 or done == total:
            left = (time.monotonic() - began) / (done - before) * (total - done)
            rest = f"  about {duration(left)} left" if done < total else ""
            show(f"{prefix}{done}/{total}  {text}{rest}", error=error)

    yield advance


def duration(seconds: float) -> str:
    """Seconds, minutes or hours as text."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def describe(episode: Episode) -> str:
    """The result of an episode, in a few words."""
    grade = episode.grade
    result = f"{grade.correct} of {grade.required}" if grade is not None else f"failed: {failure_message(episode)}"
    return f"{episode.organization}  {episode.problem.id}  {result}"
