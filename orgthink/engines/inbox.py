"""Questions to people: whoever asks waits for an answer, whoever shows the questions passes it on.

An engine behind which a person writes asks, and so does an approver. A terminal shows the questions, or a page: it
watches an inbox, shows what is open, and calls `write` or `decline`. All of them live on one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from itertools import count


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """What a person is asked."""

    title: str
    """Who is asked, or what about; one line in our words."""
    text: str
    """What it is about: text of models, which may hold anything."""
    hint: str = ""
    """How this one is answered, beyond what is true of every question; one line."""


class Declined(Exception):
    """The person does not answer."""


@dataclass(slots=True)
class _Open:
    question: OpenQuestion
    messages: asyncio.Queue[str | None] = field(default_factory=asyncio.Queue)
    """What was written and not read yet; `None` declines."""


class Inbox:
    """The questions that are open, by their numbers, and what is written in answer."""

    def __init__(self) -> None:
        self._open: dict[int, _Open] = {}
        self._numbers = count(1)
        self._watchers: list[Callable[[], None]] = []

    @property
    def open(self) -> Mapping[int, OpenQuestion]:
        """The open questions, in the order in which they were asked."""
        return {number: each.question for number, each in self._open.items()}

    @property
    def watched(self) -> bool:
        """Whether anybody shows the questions."""
        return bool(self._watchers)

    def watch(self, changed: Callable[[], None]) -> None:
        """Call a function whenever a question is opened or closed."""
        self._watchers.append(changed)

    async def ask(self, question: OpenQuestion) -> AsyncGenerator[str]:
        """What a person writes in answer, message by message, for as long as they are read. Raises Declined.

        The question is open until the generator is closed: whoever has read enough closes it.
        """
        number = next(self._numbers)
        one = self._open[number] = _Open(question)
        self._tell()
        try:
            while (message := await one.messages.get()) is not None:
                yield message
            raise Declined
        finally:
            del self._open[number]
            self._tell()

    def write(self, number: int, message: str) -> None:
        """Pass on a message of a person. KeyError if nobody waits for it any more."""
        self._open[number].messages.put_nowait(message)

    def decline(self, number: int) -> None:
        """Say that the person does not answer. KeyError if nobody waits for it any more."""
        self._open[number].messages.put_nowait(None)

    def _tell(self) -> None:
        for changed in self._watchers:
            changed()


INBOX = Inbox()
"""Of this process: whoever shows the questions of engines that are named, such as `person:`, watches it."""
