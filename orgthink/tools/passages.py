"""Passages of text, and what finds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of text that was found."""

    title: str
    """What it is about; empty if it has no title."""
    text: str
    """What it says."""
    score: float
    """How well it fits the query: more is better, by the measure of who found it."""

    @classmethod
    def of(cls, contents: str, score: float = 0.0) -> Passage:
        """A passage as Search-R1 writes it: a title in quotes on a line of its own, then the text."""
        title, newline, text = contents.strip().partition("\n")
        return cls(title.strip().strip('"'), text, score) if newline else cls("", title, score)

    @property
    def line(self) -> str:
        """On one line, with its title."""
        return " ".join((f"{self.title}: {self.text}" if self.title else self.text).split())


class Retriever(Protocol):
    """Something that finds passages."""

    async def retrieve(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
        """At most `topk` passages for each query, most relevant first. ToolError if the outside world fails."""
        ...
