"""A terminal that shows the open questions of an inbox, one after the other, and passes on what is typed.

    one line            answers
    \"\"\" … \"\"\"         several lines, between two lines that hold only this mark
    Ctrl-D              declines

Lines that were typed before a question was shown do not answer it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from contextlib import suppress
from unicodedata import east_asian_width

from orgthink.engines.inbox import INBOX, Inbox
from orgthink.util.errors import UserError
from orgthink.util.terminal import clean, one_line, show

MARK = '"""'
"""Alone on a line: begins and ends an answer of several lines."""

_PAUSE = 0.1
"""Seconds after a line in which a question is closed, if that line answers it."""


class PeopleTerminal:
    """Reads the standard input of this process, and shows on standard error."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox, self._current = inbox, 0
        """The number of the question that is shown; 0 where none is."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """The one that waits for input; `None` where nothing is open."""
        self._answered = False
        """Whether the person did anything about it."""
        self._typed = b""
        """A line that is not whole."""
        self._lines: list[str] | None = None
        """Of an answer of several lines; `None` outside of one."""
        inbox.watch(self._changed)

    def _changed(self) -> None:
        """Questions were opened or closed."""
        waiting = list(self._inbox.open)
        if self._current in waiting:
            return
        if self._current and not self._answered:
            show(f"\n[{self._current}] is over: nobody waits for an answer any more", error=True)
        self._current, self._answered, self._typed, self._lines = next(iter(waiting), 0), False, b"", None
        if self._current:
            self._show(more=len(waiting) - 1)
        self._listen()

    def _show(self, more: int) -> None:
        question = self._inbox.open[self._current]
        with suppress(termios.error):  # the terminal is gone
            termios.tcflush(sys.stdin, termios.TCIFLUSH)
        others = f" ({more} more wait)" if more else ""
        usual = f"a line, or several between two lines {MARK}; Ctrl-D declines"
        hint = "; ".join(filter(None, (usual, question.hint)))
        # Nothing in it can look like a line of ours, also where the terminal would break a long line.
        lines = [f"│ {row}" for line in clean(question.text).splitlines() for row in rows(line, _columns() - 2)]
        show(f"\n[{self._current}]{others} {one_line(question.title)}", *lines, f"({hint})", error=True)
        self._prompt(self._current)

    def _prompt(self, number: int) -> None:
        if number == self._current:
            show(f"[{number}]> ", end="", error=True)

    def _listen(self) -> None:
        """Wait for input while anything is open."""
        if self._current and self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(sys.stdin.fileno(), self._read)
        elif not self._current and self._loop is not None:
            self._loop.remove_reader(sys.stdin.fileno())
            self._loop = None

    def _read(self) -> None:
        try:
            typed = os.read(sys.stdin.fileno(), 1 << 16)
        except OSError:  # the terminal is gone
            typed = b""
        if not typed:
            self._answered = True
            self._inbox.decline(self._current)
            return
        *lines, self._typed = (self._typed + typed).split(b"\n")
        for line in lines:
            self._line(line.decode(errors="replace").rstrip("\r"))

    def _line(self, line: str) -> None:
        if line.strip() == MARK:
            if self._lines is None:
                self._lines = []
                return
            line, self._lines = "\n".join(self._lines), None
        if self._lines is not None:
            self._lines.append(line)
            return
        self._answered = True
        self._inbox.write(self._current, line)
        if self._loop is not None:  # whoever reads it may want another one
            self._loop.call_later(_PAUSE, self._prompt, self._current)


def rows(line: str, columns: int) -> list[str]:
    """The parts of a line that each fit so many columns; a tab becomes four spaces. Whatever a terminal may show in two
    columns is counted as two."""
    found, used = [""], 0
    for character in line.replace("\t", "    "):
        cells = 2 if east_asian_width(character) in "WFA" else 1
        if used + cells > columns and found[-1]:
            found.append("")
            used = 0
        found[-1] += character
        used += cells
    return found


def _columns() -> int:
    """Of the terminal; 80 where it does not say."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:  # it is none, or it is gone
        return 80


def ask_at_terminal(inbox: Inbox = INBOX) -> Inbox:
    """An inbox whose questions somebody shows: the terminal, unless a page does. UserError without a terminal."""
    if not inbox.watched:
        for stream, name in ((sys.stdin, "input"), (sys.stderr, "error")):
            if stream is None or not stream.isatty():
                raise UserError(f"a person is asked at the terminal, and standard {name} is none: run it in a terminal")
        PeopleTerminal(inbox)
    return inbox
