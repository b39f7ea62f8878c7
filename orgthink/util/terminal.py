"""Printing, messages and progress, without secrets and without control characters.

Text of models, servers and files may contain escape sequences and invisible characters.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, NoReturn
from unicodedata import category

from orgthink.util.redaction import redact

MOST_QUOTED = 300
"""Characters of foreign text in a message."""

UNREAD = 128 + signal.SIGPIPE
"""Exit code of a process whose output is closed, as after SIGPIPE."""

_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode's categories of controls, format characters (bidi, zero width, tags), half surrogate pairs, and separators of
lines and paragraphs."""
_IGNORABLE = ((0x180B, 0x180F), (0x2065, 0x2065), (0xFE00, 0xFE0D), (0xFFF0, 0xFFF8), (0xE0000, 0xE0FFF))
"""Ranges of Unicode's other default ignorable code points. The selectors U+FE0E and U+FE0F stay: they choose between
text and emoji."""
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0").union(
    chr(code) for first, last in _IGNORABLE for code in range(first, last + 1)
)
"""Letters, marks and signs without ink."""


class _Escapes(dict[int, str]):
    def __missing__(self, code: int) -> str:
        character = chr(code)
        if character in "\n\t" or (category(character) not in _UNSEEN and character not in _BLANK):
            return character
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_ESCAPES = _Escapes()


def clean(text: str) -> str:
    """Text for printing: control and invisible characters are escaped, as in `\\u001b`, secrets are redacted. Line
    breaks and tabs stay."""
    text = redact(text)
    return text if text.isprintable() and _BLANK.isdisjoint(text) else text.translate(_ESCAPES)


def one_line(text: str) -> str:
    """Text for a message: clean and on one line."""
    return clean(" ".join(redact(text).split()))


def excerpt(text: str, most: int = MOST_QUOTED) -> str:
    """The beginning of a foreign text, for a message. It is redacted before it is cut, and cleaned only as far as it is
    used, because cleaning a long text takes seconds."""
    return clean(redact(" ".join(redact(text).split(maxsplit=most)[:most]))[:most])[:most]


def reason(error: BaseException, most: int = MOST_QUOTED) -> str:
    """The text of an error, for a message; its type if the text is empty."""
    return excerpt(error_text(error), most) or type(error).__name__


def error_text(error: BaseException) -> str:
    """The text of an error; empty if its class fails to write it."""
    try:
        return str(error)
    except Exception:
        return ""


def show(*texts: object, end: str = "\n", error: bool = False) -> None:
    """Print cleaned texts, one a line, to standard output or to standard error. Nothing else in the package prints.

    A closed standard error is ignored. A closed standard output, as after `head`, ends the process.
    """
    if error and sys.stderr is None:
        return
    try:
        print(*(clean(str(text)) for text in texts), sep="\n", end=end, file=sys.stderr if error else None, flush=True)
    except OSError as failure:
        if error:
            sys.stderr = None
            return
        give_up_output(failure)


def give_up_output(failure: OSError) -> NoReturn:
    """Close standard output after a failure. SystemExit if its reader is gone, else the failure."""
    with suppress(OSError, ValueError, AttributeError):  # it may not be a file
        # Otherwise Python writes its buffer at exit and reports an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(failure, BrokenPipeError):
        raise SystemExit(UNREAD) from failure
    raise failure


def clean_tracebacks() -> None:
    """Clean also the tracebacks, warnings and log lines that Python prints."""
    sys.excepthook = _show_traceback
    threading.excepthook = lambda ended: _show_traceback(ended.exc_type, ended.exc_value, ended.exc_traceback)
    sys.unraisablehook = lambda ended: _show_traceback(ended.exc_type, ended.exc_value, ended.exc_traceback)
    if not isinstance(warnings.formatwarning, _CleanWarnings):  # once only
        warnings.formatwarning = _CleanWarnings(warnings.formatwarning)
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Lines())
        logging.lastResort.addFilter(_first)


MOST_LINES = 20
"""Log lines of one place in the code that are printed in a minute."""

_logged: dict[tuple[str, int], tuple[int, int]] = {}
"""The last minute in which a place has logged, and its log lines in that minute."""


def _first(record: logging.LogRecord) -> bool:
    """Whether a log line is printed: one of the first of its place in a minute. A flood would fill the disk."""
    place, minute = (record.pathname, record.lineno), int(record.created) // 60
    before, count = _logged.get(place, (minute, 0))
    _logged[place] = minute, (count := count + 1 if minute == before else 1)
    if count == MOST_LINES:
        record.msg, record.args = f"{record.getMessage()} (more of these lines are not printed for a minute)", None
    return count <= MOST_LINES


class _CleanWarnings:
    def __init__(self, form: Callable[..., str]) -> None:
        self._form = form

    def __call__(self, *given: Any, **more: Any) -> str:
        return clean(self._form(*given, **more))


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return clean(super().format(record))


def _show_traceback(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    show("".join(traceback.format_exception(kind, error, trace)), end="", error=True)


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
