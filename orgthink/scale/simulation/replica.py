"""One replica of the model: its batch, which advances by many steps at a time while its rows stay the same."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

from orgthink.errors import UserError
from orgthink.scale.simulation.engine import EngineModel

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class ReplicaRequest(Generic[T]):
    """A prompt or a continued context, and the tokens to decode after it."""

    agent: T
    """Whose request it is."""
    unread: int
    """Tokens still to read."""
    context: int
    """Tokens of the context that is read; once it decodes, less the replica's steps at that time."""
    tokens: int
    """Tokens to decode up to its next event."""
    reserved: int
    """Tokens of the cache that it reserves: its context at the end."""
    decodes: bool = False
    """Whether its context is read, so that it is a row of the batch."""
    over: bool = False
    """Whether it has left the replica."""


class EngineReplica(Generic[T]):
    """A copy of the model on its own GPU. All rows advance together, so one counter of steps determines every event."""

    def __init__(self, model: EngineModel) -> None:
        self.model = model
        self.clock: float = 0
        """Seconds at which the last step ended."""
        self.load = 0
        """Requests in the batch or waiting for it."""
        self.agents = 0
        """Agents whose contexts it caches."""
        self.version = 0
        """Raised whenever the next event changes."""
        self.steps = self.sampled = self.read = 0
        """Steps, and the tokens that were sampled and read in them."""
        self.busy: float = 0
        """Seconds spent in steps."""
        self._rows = self._context = self._reserved = 0
        self._events: list[tuple[int, int, ReplicaRequest[T]]] = []
        """Heap of (step at which a row has decoded its tokens, number that breaks ties, request)."""
        self._order = 0
        self._waiting: deque[ReplicaRequest[T]] = deque()
        self._reading: list[ReplicaRequest[T]] = []

    def submit(self, request: ReplicaRequest[T], now: float) -> None:
        """Take a request at the end of the current step."""
        if request.reserved > self.model.cache:
            raise UserError(f"a context of {request.reserved:,} tokens exceeds the cache of {self.model.cache:,}")
        self.catch_up(now)
        self.load += 1
        self._waiting.append(request)

    def extend(self, request: ReplicaRequest[T], tokens: int) -> None:
        """Let a row decode on."""
        self._order += 1
        heapq.heappush(self._events, (self.steps + tokens, self._order, request))

    def remove(self, request: ReplicaRequest[T], now: float) -> None:
        """End a request. A token that is being sampled is lost."""
        self.catch_up(now)
        request.over = True
        self.load -= 1
        if request.decodes:
            self._rows -= 1
            self._context -= request.context + self.steps
        if request.decodes or request in self._reading:
            self._reserved -= request.reserved
        self._reading = [other for other in self._reading if not other.over]

    def next(self) -> float | None:
        """Time of the next event; `None` without work. Requests join the batch here, between two steps."""
        self._admit()
        steps = self._until_event()
        if self._reading and steps:
            return self.clock + self._step(self._shares())
        return None if not self._rows else self.clock + self.model.decoding(self._rows, self._context, steps)

    def advance(self) -> list[ReplicaRequest[T]]:
        """Advance to the next event. Returns the requests that have decoded their tokens."""
        self._run(self._until_event())
        due = []
        while self._events and (self._events[0][0] <= self.steps or self._events[0][2].over):
            request = heapq.heappop(self._events)[2]
            if not request.over:
                due.append(request)
        return due

    def catch_up(self, now: float) -> None:
        """Finish the step that is under way."""
        if self._reading and self.clock < now:
            self._run(1)
        elif self._rows and self.clock < now:
            most = self._until_event()
            self._run(self.model.steps_until(now - self.clock, self._rows, self._context, most))
        if not self._rows and not self._reading:
            self.clock = max(self.clock, now)

    def _admit(self) -> None:
        while self._waiting and (self._waiting[0].over or self._fits(self._waiting[0])):
            request = self._waiting.popleft()
            if not request.over:
                self._reading.append(request)
                self._reserved += request.reserved

    def _fits(self, request: ReplicaRequest[T]) -> bool:
        free = self._rows + len(self._reading) < self.model.slots
        return free and self._reserved + request.reserved <= self.model.cache

    def _until_event(self) -> int:
        """Steps up to the next event of the batch; at most one while prompts are read."""
        while self._events and self._events[0][2].over:
            heapq.heappop(self._events)
        steps = self._events[0][0] - self.steps if self._events else int(bool(self._reading))
        return min(1, steps) if self._reading else steps

    def _run(self, steps: int) -> None:
        if not steps:
            return
        if self._reading:
            shares = self._shares()
            seconds = self._step(shares)
            self._take(shares)
        else:
            seconds = self.model.decoding(self._rows, self._context, steps)
            self.steps, self.sampled = self.steps + steps, self.sampled + steps * self._rows
            self._context += steps * self._rows
        self.clock, self.busy = self.clock + seconds, self.busy + seconds

    def _shares(self) -> list[tuple[ReplicaRequest[T], int]]:
        """The requests that the next step reads, with the number of their tokens, in order of arrival."""
        shares, left = [], self.model.chunk
        for request in self._reading:
            if not left:
                break
            shares.append((request, min(left, request.unread)))
            left -= shares[-1][1]
        return shares

    def _step(self, shares: list[tuple[ReplicaRequest[T], int]]) -> float:
        """Seconds of a step that reads."""
        read = sum(tokens for _, tokens in shares)
        seen = sum(
            tokens * (request.context - request.unread) + tokens * (tokens + 1) // 2 for request, tokens in shares
        )
        joining = sum(tokens == request.unread for request, tokens in shares)
        return self.model.reading(self._rows, self._context, read, seen, joining)

    def _take(self, shares: list[tuple[ReplicaRequest[T], int]]) -> None:
        """Take a step that reads. A request whose context is complete samples its first token."""
        self.steps, self.sampled = self.steps + 1, self.sampled + self._rows
        self._context += self._rows
        for request, tokens in shares:
            self.read += tokens
            request.unread -= tokens
            if not request.unread:
                self._rows, self.sampled, request.decodes = self._rows + 1, self.sampled + 1, True
                self._context += request.context + 1
                request.context += 1 - self.steps
                self.extend(request, request.tokens - 1)
        self._reading = [request for request in self._reading if request.unread]
