"""Data of the live page: running episodes and the last ones that ended."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import compress, count
from typing import Any, NamedTuple
from uuid import uuid4

from orgthink.record.episode import Episode, Problem
from orgthink.record.folder import Journal
from orgthink.runtime.agent import Agent, Watcher
from orgthink.util.threads import UNKNOWN, off_loop
from orgthink.view.growing import RECENT
from orgthink.view.pack import listed, opened

RUNNING = "running"
"""Stop reason of an episode or agent that has not ended."""
Row = dict[str, Any]
"""An episode as the page lists it: its numbers, without its agents."""


class Running:
    """An episode at work. `watch` is its watcher and passes events on to the client's."""

    def __init__(self, problem: Problem, question: str, organization: str, capacity: int, client: Watcher) -> None:
        """`question` is its beginning, by which the page lists it."""
        self.id, self.problem, self.question = uuid4().hex, problem, question
        self._organization, self._capacity, self._client = organization, capacity, client
        self._agents: dict[str, Agent] = {}
        """Agents that have begun, parents first."""

    def watch(self, kind: str, agent: Agent, text: str) -> None:
        if kind == "start":
            self._agents[agent.id] = agent
        self._client(kind, agent, text)

    @property
    def row(self) -> Row:
        sampled = sum(agent.steps for agent in self._agents.values())
        named = {"id": self.id, "organization": self._organization, "problem": self.question, "sampled": sampled}
        unknown = dict.fromkeys(("grade", "steps", "seconds", "error"))
        return named | unknown | {"stop": RUNNING, "sample": 0, "faults": [], "agents": []}

    def packed(self) -> Callable[[], dict[str, Any]] | None:
        """Makes the page's data of the episode as it stands, in any thread; `None` before its first agent begins."""
        if not self._agents:
            return None
        episode, working = self._episode(), [agent.result is None for agent in self._agents.values()]

        def drawn() -> dict[str, Any]:
            found = opened(episode, self.id, self.question)
            found["episode"]["stop"] = RUNNING
            for row in compress(found["episode"]["agents"], working):
                row |= {"stop": RUNNING, "status": RUNNING}
            return found

        return drawn

    def _episode(self) -> Episode:
        """The record so far. An agent that waits for its place is in it when it begins."""
        traces = [agent.trace_so_far() for agent in self._agents.values()]
        begun = tuple(
            replace(trace, edges=tuple(edge for edge in trace.edges if edge.child in self._agents)) for trace in traces
        )
        return Episode(
            self.id,
            self.problem,
            self._organization,
            self._capacity,
            begun,
            format_faults=tuple(fault for agent in self._agents.values() for fault in agent.faults),
            seconds=begun[0].end,
        )


class Ended(NamedTuple):
    """An episode that has ended."""

    number: int
    """Its number among the ended episodes, from 1."""
    place: int
    """Its byte offset in the file of episodes."""
    row: Row
    """Its row in the list."""


class Board:
    """The episodes that the page shows. The texts of an episode are read from the run folder when it is opened."""

    def __init__(self, journal: Journal) -> None:
        self.id = uuid4().hex
        """Id of this server process, whose numbers start at 1."""
        self._journal, self._numbers = journal, count(1)
        self._running: dict[str, Running] = {}
        self._ended: deque[Ended] = deque(maxlen=RECENT)

    def begin(self, running: Running) -> None:
        self._running[running.id] = running

    def end(self, running: Running) -> None:
        """Remove an episode that has ended."""
        self._running.pop(running.id, None)

    async def store(self, running: Running, episode: Episode) -> None:
        """Write an episode that has ended to the run folder, and list it."""
        place = await asyncio.shield(
            off_loop(sum(len(s.text) for trace in episode.traces for s in trace.spans), self._journal.append, episode)
        )
        self._ended.append(Ended(next(self._numbers), place, listed(episode, running.id, running.question)))

    @property
    def sampled(self) -> int:
        """Tokens of the running episodes so far."""
        return sum(one.row["sampled"] for one in self._running.values())

    def listing(self, after: int) -> dict[str, Any]:
        """Running episodes, and those with a number above `after` that ended, the newest first."""
        ended = [one.row for one in reversed(self._ended) if one.number > after]
        number = self._ended[-1].number if self._ended else 0
        return {
            "server": self.id,
            "number": number,
            "running": [one.row for one in reversed(self._running.values())],
            "ended": ended,
        }

    async def packed(self, name: str) -> dict[str, Any] | None:
        """The page's data of an episode; `None` if there is none of that name, or it has no agent yet."""
        if (running := self._running.get(name)) is not None:
            packed = running.packed()
            return None if packed is None else await off_loop(UNKNOWN, packed)
        ended = next((one for one in self._ended if one.row["id"] == name), None)
        return None if ended is None else await off_loop(UNKNOWN, self._read, ended)

    def _read(self, ended: Ended) -> dict[str, Any] | None:
        try:
            return opened(self._journal.at(ended.place), ended.row["id"], ended.row["problem"])
        except (OSError, ValueError):  # the file was moved or cut
            return None
