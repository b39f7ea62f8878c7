"""Merges the texts of all agents into one: the reasoning that a client sees.

One agent streams until its line ends; the lines of the others wait until they are complete. A change of agent is marked
by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orgthink.runtime.agent import Agent

_EVENTS = {"fork": "forks", "join": "joins", "end": "ends:"}


class Lanes:
    """A watcher of an episode."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """`say` gets the next text of the reasoning, never an empty one."""
        self._say = say
        self._speaker: str | None = None
        """Agent whose line is open."""
        self._named: str | None = None
        """Agent named last."""
        self._waiting: dict[str, list[str]] = {}
        """Parts of incomplete lines of other agents."""
        self._empty = True
        """Whether no text was sent yet."""

    def watch(self, kind: str, agent: Agent, text: str) -> None:
        if kind == "text":
            self._text(agent.id, text)
        elif kind in _EVENTS:
            if rest := self._taken(agent.id):
                self._lines(agent.id, rest)
            self._line(f"[{agent.id} {_EVENTS[kind]} {text}]")

    def _text(self, name: str, text: str) -> None:
        if self._speaker not in (None, name):
            whole, newline, rest = text.rpartition("\n")
            if newline:
                self._lines(name, self._taken(name) + whole)
            self._waiting.setdefault(name, []).append(rest)
            return
        self._open(name)
        self._emit(self._taken(name) + text)
        self._speaker = None if text.endswith("\n") else name

    def _taken(self, name: str) -> str:
        """Remove and return the waiting text of an agent."""
        return "".join(self._waiting.pop(name, ()))

    def _open(self, name: str) -> None:
        """Start a line of an agent."""
        if self._named != name:
            self._emit(("" if self._empty else "\n") + f"[{name}] ")
        self._named = self._speaker = name

    def _lines(self, name: str, text: str) -> None:
        """Complete lines of another agent, on lines of their own."""
        if text.strip():
            self._line(f"[{name}] {text.strip()}")

    def _line(self, text: str) -> None:
        self._emit(("" if self._empty else "\n") + text)
        self._speaker = self._named = None

    def _emit(self, text: str) -> None:
        if text:
            self._empty = False
            self._say(text)
