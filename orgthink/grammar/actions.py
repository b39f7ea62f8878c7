"""Actions in the text of agents, which the runtime executes, and the protocol of scanners. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

THINK = "<think>"
"""Begins the thinking. Many prompts end with it, so that a text may contain only the closing tag."""
THOUGHT = "</think>"
"""Ends the thinking."""


@dataclass(frozen=True, slots=True)
class Think:
    """Text without protocol meaning."""

    text: str


@dataclass(frozen=True, slots=True)
class Fork:
    """Give a sub-query to a worker and continue."""

    key: str
    """Identifier of the sub-query."""
    query: str
    """The sub-query as written, spaces included."""
    model: str = ""
    """The member of a pool that it names; empty if it names none."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Give a follow-up to a worker that was joined, and continue. The worker goes on from the context that it has."""

    key: str
    """Identifier of its sub-query."""
    query: str
    """The follow-up as written, spaces included."""


@dataclass(frozen=True, slots=True)
class Join:
    """Wait for a sub-query; decoding pauses after the tag until something is injected."""

    key: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The final answer; decoding ends."""

    text: str


@dataclass(frozen=True, slots=True)
class Return:
    """The result of a worker; decoding ends."""

    text: str


@dataclass(frozen=True, slots=True)
class Malformed:
    """A closing tag without an opening one, or an element that another tag or the end cut off, as written."""

    text: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """End a sub-query before it is done, and give up its result. Only a call can say it."""

    key: str


@dataclass(frozen=True, slots=True)
class Poll:
    """Ask which sub-queries are done, and what is left of the budget. In tags, decoding pauses after it."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """Take the result of a sub-query that is done. Where results are pushed, the runtime says it and no text."""

    key: str


Action = Think | Fork | Tell | Join | Poll | Answer | Return | Malformed
"""What a text may say."""
Command = Action | Cancel | Deliver
"""What the runtime does for an agent: what the agent says in its text or by calls, and what is due."""


class Event(NamedTuple):
    """An action and its end in the text that was fed."""

    action: Action
    end: int
    """Characters fed up to and including the action."""


class Scanner:
    """Reads a stream of text. The events do not depend on how the text is cut into pieces.

    This one has no protocol: everything is text.
    """

    stops: tuple[str, ...] = ()
    """Stop texts for the engine: after them the runtime continues, not the model."""
    signals: tuple[str, ...] = ()
    """Texts on which the runtime acts while the model goes on, such as the end of a Fork. A hint for engines that
    answer in parts; the runtime itself finds more."""
    quoted: bool = False
    """Whether the last tag was text, so that an engine that stopped there has not come to an end."""

    def __init__(self, *stops: str) -> None:
        self.stops = stops

    @property
    def incomplete(self) -> bool:
        """Whether the text so far ends within a tag or an element."""
        return False

    def feed(self, text: str) -> list[Event]:
        """Events completed by this piece of text."""
        return []

    def close(self) -> list[Event]:
        """Events left when the stream has ended."""
        return []
