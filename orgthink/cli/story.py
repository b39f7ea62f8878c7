"""The agents of an episode as they fork and join: one line an event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orgthink.util.terminal import show

if TYPE_CHECKING:
    from orgthink.runtime.agent import Agent

_WORDS = {"start": "starts", "fork": "forks", "join": "joins", "end": "ends:"}


class Story:
    """Prints events. The text of an agent (│) is printed before its next event, such as the text of a Join (◂)."""

    def __init__(self) -> None:
        self._pending: dict[str, str] = {}

    def watch(self, kind: str, agent: Agent, text: str) -> None:
        """The watcher of a session."""
        if kind == "text":
            self._pending[agent.id] = self._pending.get(agent.id, "") + text
            return
        self._lines(agent, "│", self._pending.pop(agent.id, ""))
        if kind == "inject":
            self._lines(agent, "◂", text)
        else:
            self._line(agent, f"{_WORDS[kind]} {text}".rstrip())

    def _lines(self, agent: Agent, mark: str, text: str) -> None:
        for line in text.strip().splitlines():
            self._line(agent, f"{mark} {line.strip()}")

    def _line(self, agent: Agent, text: str) -> None:
        show(f"{agent.steps:5d}  {agent.id:<14} {text}")
