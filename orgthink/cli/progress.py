"""How far a run is, on standard error: a bar on a terminal, a line every so often elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from orgthink.episode import Episode
from orgthink.evaluation import failure_message

if TYPE_CHECKING:
    from rich.console import Console

LINES = 20
"""About so many lines a run, where there is no terminal."""


@contextmanager
def progress(total: int) -> Iterator[Callable[[Episode, int], None]]:
    """Gives a function to call with every episode that ends, and with how many then have."""
    from rich.console import Console

    console = Console(stderr=True)
    with _bar(console, total) if console.is_terminal else _lines(total) as ended:
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
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("episodes", total=total)
        yield lambda episode, done: bar.update(task, completed=done, description=describe(episode))


@contextmanager
def _lines(total: int) -> Iterator[Callable[[Episode, int], None]]:
    every = max(1, total // LINES)

    def ended(episode: Episode, done: int) -> None:
        if done % every == 0 or done == total:
            print(f"{done}/{total}  {describe(episode)}", file=sys.stderr, flush=True)

    yield ended


def describe(episode: Episode) -> str:
    """What came of an episode, in a few words."""
    grade = episode.grade
    result = f"{grade.correct} of {grade.required}" if grade is not None else f"failed: {failure_message(episode)}"
    return f"{episode.organization}  {episode.problem.id}  {result}"
