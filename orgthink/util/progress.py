"""Progress of something long: a bar in a terminal, one line that is replaced in a notebook, a line now and then
elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

from orgthink.util.terminal import clean, show

LINES = 20
"""Lines of progress of a run without a terminal, about."""

Advance = Callable[[int, str], None]
"""Called with the number of things that are done, and a text about the last one."""


@contextmanager
def progress(
    total: int, *, prefix: str = "", every: int | None = None, error: bool = True, unseen: bool = True
) -> Iterator[Advance]:
    """Yields the function that shows progress, on standard error or else on standard output. `unseen`: also where there
    is neither a terminal nor a notebook."""
    from rich import progress as rich
    from rich.console import Console

    console = Console(stderr=error)
    if console.is_terminal:
        text = rich.TextColumn("{task.description}", markup=False)
        times = rich.TimeElapsedColumn(), rich.TimeRemainingColumn()
        with rich.Progress(rich.BarColumn(), rich.MofNCompleteColumn(), *times, text, console=console) as bar:
            task = bar.add_task("", total=total)
            yield lambda done, text: bar.update(task, completed=done, description=clean(text))
        return
    began, before = time.monotonic(), total
    say = _one_line() if console.is_jupyter else partial(show, error=error)
    every = 1 if console.is_jupyter else every or max(1, total // LINES)

    def advance(done: int, text: str) -> None:
        nonlocal before
        before = min(before, done - 1)  # what a resumed run had before does not count for the speed
        if done % every == 0 or done == total:
            left = (time.monotonic() - began) / (done - before) * (total - done)
            rest = f"  about {timedelta(seconds=round(left))} left" if done < total else ""
            say(f"{prefix}{done}/{total}  {text}{rest}")

    yield advance if unseen or console.is_jupyter else lambda done, text: None


def tell(text: str) -> None:
    """Say something where progress is seen: below the cell of a notebook, or in a terminal."""
    if in_notebook() or (sys.stderr is not None and sys.stderr.isatty()):
        show(text, error=not in_notebook())


def in_notebook() -> bool:
    """Whether a notebook shows what this process displays."""
    from rich.console import Console

    return Console().is_jupyter


def _one_line() -> Callable[[str], None]:
    """Replaces a line below the cell that runs. Threads may call it."""
    from IPython.display import display

    line: Any = display({"text/plain": ""}, raw=True, display_id=True)
    return lambda text: line.update({"text/plain": clean(text)}, raw=True)
