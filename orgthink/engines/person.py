"""A person as an engine: their text is the stream, so any organization may have people in any role.

A prompt becomes a question in an inbox, and so does each later injection. The terminal shows the open questions one
after the other. How a reply ends:

- where a reply may be long, such as an organizer's: with a stop text (an answer, a Join) or an empty message. Each
  message takes effect at once.
- where a reply ends with one text only, such as a worker's `</RETURN>`: with the first message. The tags are added if
  the person leaves them out.
- everywhere else: with the first message.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import termios
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from itertools import count, takewhile

from rich.cells import chop_cells

from orgthink.engines.engine import Chunk, Context, Engine, FinishReason
from orgthink.engines.scripted import pieces
from orgthink.record.episode import Origin, Sampling
from orgthink.util.errors import PersonDeclined, UserError
from orgthink.util.terminal import clean, one_line, show

_PAUSE = 0.1
"""Seconds after a line until the terminal prompts again, if the question is still open."""

_CLOSING = re.compile(r"</([^<>/]+)>")


@dataclass(eq=False, slots=True)
class OpenQuestion:
    """A question to a person."""

    title: str
    """One line: the person, or the subject."""
    text: str
    """Text of models, which may hold anything."""
    hint: str = ""
    """One line: how to answer this question in particular."""
    messages: asyncio.Queue[str | None] = field(default_factory=asyncio.Queue)
    """Unread messages; `None` declines."""


class Inbox:
    """Open questions by number, and the answers to them. All users share one event loop."""

    def __init__(self) -> None:
        self.open: dict[int, OpenQuestion] = {}
        """The open questions, the oldest first."""
        self.watchers: list[Callable[[], None]] = []
        """Called whenever a question is opened or closed."""
        self._numbers = count(1)

    async def ask(self, question: OpenQuestion) -> AsyncGenerator[str]:
        """The person's messages until they decline. The question is open until the generator is closed."""
        number = next(self._numbers)
        self.open[number] = question
        self._notify()
        try:
            while (message := await question.messages.get()) is not None:
                yield message
        finally:
            del self.open[number]
            self._notify()

    def write(self, number: int, message: str | None) -> None:
        """Pass on a message of a person; `None` declines to answer. KeyError if the question is closed."""
        self.open[number].messages.put_nowait(message)

    def _notify(self) -> None:
        for changed in self.watchers:
            changed()


INBOX = Inbox()
"""Inbox of this process, for `person:` engines."""


class PersonEngine(Engine):
    """Lets a person write, through an inbox."""

    def __init__(self, person: str, inbox: Inbox) -> None:
        """`person` is their name, for the record."""
        self.person = self.model = person
        self._inbox = inbox

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        stops = sampling.stop
        only = _CLOSING.fullmatch(stops[0]) if len(stops) == 1 else None
        continues = bool(stops) and only is None
        question = OpenQuestion(f"question for {self.person}:", _news(context), _hint(stops, only))
        text = ""
        async with aclosing(self._inbox.ask(question)) as messages:
            async for message in messages:
                if message.strip():
                    end = _end(text + message, stops)
                    if only is not None and end is None:
                        message = f"<{only[1]}> {message} {only[0]}"
                        end = len(message)
                    message = message if end is None else message[: end - len(text)]
                    over = end is not None or not continues
                    message += "" if over else "\n"
                    text += message
                    finish = FinishReason.EOS if end is None else FinishReason.STOP
                    yield Chunk(tuple(pieces(message)), finish=finish if over else None)
                    if over:
                        return
                elif continues:
                    yield Chunk((), finish=FinishReason.EOS)
                    return
        raise PersonDeclined(f"{self.person} declined")


def _news(context: Context) -> str:
    """The part that the person has not seen: the prompt, or the injections since their last message."""
    new = list(takewhile(lambda span: span.origin is not Origin.WRITTEN, reversed(context.spans)))
    return "".join(span.text for span in reversed(new)).strip()


def _hint(stops: tuple[str, ...], only: re.Match[str] | None) -> str:
    if only is not None:
        return f"<{only[1]}> and {only[0]} are added"
    return f"each line takes effect at once, {stops[0]} or an empty line ends the reply" if stops else ""


def _end(text: str, stops: tuple[str, ...]) -> int | None:
    """Where the first stop text ends; `None` without one."""
    return min((at + len(stop) for stop in stops if (at := text.find(stop)) >= 0), default=None)


class PeopleTerminal:
    """Shows the questions of an inbox on standard error, and reads the answers from standard input.

    A line answers, Ctrl-D declines. Lines typed before a question was shown do not answer it.
    """

    def __init__(self, inbox: Inbox) -> None:
        self._inbox, self._current = inbox, 0
        """Number of the question on the screen; 0 without one."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """Event loop that waits for input; `None` while no question is open."""
        inbox.watchers.append(self._changed)

    def _changed(self) -> None:
        """Show the next question, if the one on the screen was closed."""
        waiting = list(self._inbox.open)
        if self._current not in waiting:
            self._current = next(iter(waiting), 0)
            if self._current:
                self._show()
            self._listen()

    def _listen(self) -> None:
        """Wait for input while a question is open."""
        if self._current and self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(sys.stdin.fileno(), self._read)
        elif not self._current and self._loop is not None:
            self._loop.remove_reader(sys.stdin.fileno())
            self._loop = None

    def _show(self) -> None:
        question = self._inbox.open[self._current]
        with suppress(termios.error):  # the terminal is gone
            termios.tcflush(sys.stdin, termios.TCIFLUSH)
        hint = "; ".join(filter(None, ("a line answers; Ctrl-D declines", question.hint)))
        # The mark before each row separates text of models from ours, also where the terminal breaks a long line.
        rows = [f"│ {row}" for line in clean(question.text).splitlines() for row in _rows(line)]
        show(f"\n[{self._current}] {one_line(question.title)}", *rows, f"({hint})", error=True)
        self._prompt(self._current)

    def _prompt(self, number: int) -> None:
        if number == self._current:
            show(f"[{number}]> ", end="", error=True)

    def _read(self) -> None:
        typed = b""
        with suppress(OSError):  # the terminal is gone
            typed = os.read(sys.stdin.fileno(), 1 << 16)
        if not typed:
            self._inbox.write(self._current, None)
            return
        for line in typed.decode(errors="replace").splitlines():
            self._inbox.write(self._current, line)
        if self._loop is not None:  # the reader may need another line
            self._loop.call_later(_PAUSE, self._prompt, self._current)


def _rows(line: str) -> list[str]:
    """The parts of a line that each fit the terminal after the mark."""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        columns = 80
    return chop_cells(line.replace("\t", "    "), columns - 2) or [""]


def ask_at_terminal(inbox: Inbox = INBOX) -> Inbox:
    """An inbox whose questions are shown: by the terminal, unless something else shows them. UserError without a
    terminal."""
    if not inbox.watchers:
        for stream, name in ((sys.stdin, "input"), (sys.stderr, "error")):
            if stream is None or not stream.isatty():
                raise UserError(f"a person answers at the terminal, and standard {name} is not one: use a terminal")
        PeopleTerminal(inbox)
    return inbox
