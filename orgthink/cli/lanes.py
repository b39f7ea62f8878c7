"""Agents at work, as they fork and join: live lanes on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from orgthink.util.terminal import clean, one_line, redact, show

if TYPE_CHECKING:
    from orgthink.runtime.agent import Agent, Watcher

_WORDS = {"start": "starts", "fork": "forks", "join": "joins", "end": "ends:"}


@contextmanager
def lanes(*, live: bool = True) -> Iterator[Watcher]:
    """Shows what the watcher that it gives is told; without `live` in plain lines, which leave what is typed alone."""
    console = Console(highlight=False)
    if not (live and console.is_terminal):
        story = Story()
        yield story.watch
        return
    picture = Picture(console.width)
    with Live(picture, console=console, refresh_per_second=12):
        yield picture.watch


class Story:
    """One line an event; the text of an agent (│) stands before its next event, such as what a Join gives it (◂)."""

    def __init__(self) -> None:
        self._pending: dict[str, str] = {}

    def watch(self, kind: str, agent: Agent, text: str) -> None:
        if kind == "text":
            self._pending[agent.id] = self._pending.get(agent.id, "") + text
            return
        if kind == "drop":
            self._pending.pop(agent.id, None)
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


@dataclass(slots=True)
class _Lane:
    steps: int = 0
    state: str = "queued"
    tail: str = ""


class Picture:
    """A lane for each agent: its steps, what it does, and the end of its text."""

    def __init__(self, width: int) -> None:
        self._lanes: dict[str, _Lane] = {}
        self._width = max(20, width - 40)

    def watch(self, kind: str, agent: Agent, text: str) -> None:
        lane = self._lanes.setdefault(agent.id, _Lane())
        lane.steps = agent.steps
        match kind:
            case "start":
                lane.state = "thinks"
            case "text":
                lane.state, lane.tail = "thinks", redact(lane.tail + text)[-4 * self._width :]
            case "inject":
                lane.tail = redact(f"{lane.tail}◂{text}")[-4 * self._width :]
            case "drop":
                lane.state, lane.tail = "begins anew", ""
            case "fork":
                self._lanes.setdefault(f"{agent.id}/{text}", _Lane())
            case "join":
                lane.state = f"joined {text}"
            case "end":
                lane.state = text

    def __rich__(self) -> Table:
        table = Table(box=None, pad_edge=False)
        for header in ("agent", "steps", "", "says"):
            table.add_column(header, justify="right" if header == "steps" else "left", no_wrap=True)
        for name, lane in self._lanes.items():
            tail = one_line(lane.tail)[-self._width :]
            table.add_row(Text(clean(name)), str(lane.steps), Text(clean(lane.state)), Text(tail))
        return table
