"""Everything that is printed, and every message: without secrets, and without characters that steer a terminal.

Text of models, servers and files may hold escape sequences, which write to the clipboard or repaint what was printed,
and characters that are not seen or turn the order of others.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, NoReturn
from unicodedata import category

from orgthink.util.redaction import redact

MOST_QUOTED = 300
"""Characters of somebody else's text in a message."""

UNREAD = 128 + signal.SIGPIPE
"""Exit code of a process whose output nobody reads any more: that of tools which the signal ends."""

_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode's categories of controls, format characters (bidi, zero width, tags), half surrogate pairs, and separators of
lines and paragraphs."""
_IGNORABLE = ((0x180B, 0x180F), (0x2065, 0x2065), (0xFE00, 0xFE0D), (0xFFF0, 0xFFF8), (0xE0000, 0xE0FFF))
"""Ranges of Unicode's default ignorable code points beside those categories. The selectors U+FE0E and U+FE0F stay: they
choose between text and emoji."""
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0").union(
    chr(code) for first, last in _IGNORABLE for code in range(first, last + 1)
)
"""Letters, marks and signs without any ink."""


class _Escapes(dict[int, str]):
    def __missing__(self, code: int) -> str:
        character = chr(code)
        if character in "\n\t" or (category(character) not in _UNSEEN and character not in _BLANK):
            return character
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_ESCAPES = _Escapes()


def clean(text: str) -> str:
    """Text as it may be printed: controls and characters that are not seen are spelled out, as in `\\u001b`; secrets
    are left out. Line breaks and tabs stay."""
    text = redact(text)
    return text if text.isprintable() and _BLANK.isdisjoint(text) else text.translate(_ESCAPES)


def one_line(text: str) -> str:
    """Text as it may stand in a message."""
    return clean(" ".join(redact(text).split()))


def excerpt(text: str, most: int = MOST_QUOTED) -> str:
    """The beginning of somebody else's text, for a message. Secrets are found before it is cut, so that none is left
    by half. Of a long text only the words that may stand there are cleaned: all of them take seconds."""
    line = redact(" ".join(redact(text).split(maxsplit=most)[:most]))
    return clean(line[:most])[:most]


def reason(error: BaseException, most: int = MOST_QUOTED) -> str:
    """What an error says, for a message; its type if it says nothing."""
    return excerpt(error_text(error), most) or type(error).__name__


def error_text(error: BaseException) -> str:
    """The text of an error; empty if making it fails, as it may where somebody else wrote its class."""
    try:
        return str(error)
    except Exception:
        return ""


def show(*texts: object, end: str = "\n", error: bool = False) -> None:
    """Print cleaned texts, one a line, to standard output or to standard error. Nothing else in the package prints.

    That nobody can read standard error any more, because its terminal or its pipe is gone, ends nothing. That whoever
    read standard output has gone, such as `head`, ends the process in silence.
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
    """Write no more to standard output, which failed. SystemExit if its reader has gone, else the failure."""
    with suppress(OSError, ValueError, AttributeError):  # it may be no file
        # Else Python tries to write what it still holds at its end, and complains.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(failure, BrokenPipeError):
        raise SystemExit(UNREAD) from failure
    raise failure


def clean_tracebacks() -> None:
    """Let what Python itself prints to standard error, tracebacks and log lines, be cleaned too."""
    sys.excepthook = _show_traceback
    threading.excepthook = lambda ended: _show_traceback(ended.exc_type, ended.exc_value, ended.exc_traceback)
    sys.unraisablehook = lambda ended: _show_traceback(ended.exc_type, ended.exc_value, ended.exc_traceback)
    if not isinstance(warnings.formatwarning, _CleanWarnings):  # one around another would not end, call after call
        warnings.formatwarning = _CleanWarnings(warnings.formatwarning)
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Lines())


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
