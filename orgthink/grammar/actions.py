"""What agents say that the runtime acts on, and the scanner's contract. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class Think:
    """Text without protocol meaning."""

    text: str


@dataclass(frozen=True, slots=True)
class Fork:
    """Give a sub-query to a worker and go on."""

    key: str
    """Identifier of the sub-query."""
    query: str
    """The sub-query as written, spaces included."""


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
    """What a worker hands back; decoding ends."""

    text: str


@dataclass(frozen=True, slots=True)
class Malformed:
    """A tag that closes nothing, or an element that another tag or the end cut off, as written."""

    text: str


Action = Think | Fork | Join | Answer | Return | Malformed


class Event(NamedTuple):
    """An action and where it ends in the text that was fed."""

    action: Action
    end: int
    """Characters fed up to and including the action."""


class Scanner(Protocol):
    """Reads a stream of text. However the text is cut into pieces, the events are the same."""

    stops: tuple[str, ...]
    """Texts at which an engine should stop: after them the runtime, not the model, goes on."""

    def feed(self, text: str) -> list[Event]:
        """Events completed by this piece of text."""
        ...

    def close(self) -> list[Event]:
        """Events left when the stream has ended."""
        ...
