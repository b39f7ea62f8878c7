"""One agent of an episode: who it is, what it forked and joined, how it ended, and its record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from math import inf

from orgthink.engines.engine import Tools
from orgthink.record.episode import Message, Span, Status, StopReason, Trace
from orgthink.runtime.budget import Account
from orgthink.runtime.context import Backing
from orgthink.runtime.decoder import Decoder
from orgthink.util.errors import ErrorKind


@dataclass(frozen=True, slots=True)
class Result:
    """What an agent or a tool hands to its parent."""

    text: str
    """What it returned; empty if it returned nothing."""
    status: Status = Status.OK
    """How it went."""
    source: str | None = None
    """Agent that returned it."""
    error: str | None = None
    """One line, if its engine or tool failed."""
    error_kind: ErrorKind | None = None
    """Which boundary that error crossed; `None` without one, and where a tool says only that it went wrong."""
    refused: str | None = None
    """One line for its parent, if an approver denied it."""


_STATUS = {
    StopReason.LENGTH: Status.TRUNCATED,
    StopReason.BUDGET: Status.TRUNCATED,
    StopReason.DEADLINE: Status.TIMEOUT,
    StopReason.CANCELLED: Status.CANCELLED,
    StopReason.ERROR: Status.ERROR,
}
"""Status of agents that were stopped; the status of the others follows from what they returned."""


Work = Callable[["Agent"], Awaitable[Result | str | None]]
"""What a forked agent does. It returns a text, or `None` for nothing; its status follows from why the agent stopped.

A Failure becomes a result; every other exception is a bug.
"""

Watcher = Callable[[str, "Agent", str], None]
"""Called with `start`, `text`, `inject`, `fork`, `join` or `end`, the agent, and a text, a key or a status."""


class Agent(Decoder):
    """An agent of one episode. Organizations get one from `Session.agent` and let it act."""

    def __init__(
        self,
        role: str,
        messages: tuple[Message, ...],
        backing: Backing | None,
        account: Account,
        clock: Callable[[], float],
        watch: Watcher,
        salt: str,
        limit: int | None = None,
        tools: Tools = (),
        place: Callable[[Agent], Awaitable[None]] | None = None,
        seed: int | None = None,
        trace: Trace | None = None,
        spans: Iterable[Span] = (),
    ) -> None:
        spans = trace.spans if trace else spans
        super().__init__(role, messages, backing, account, clock, watch, salt, limit, tools, place, seed, spans)
        self.role = role
        self.parent: str | None = None
        self.result: Result | None = None
        self.organizes = False
        """Whether an organization does its work."""
        self.so_far: Callable[[], str | None] = lambda: None
        """What it returns if a deadline or a budget ends it now."""
        self.over = inf
        """When its deadline passes, or that of one above it, in seconds on the watch of its chain of work."""
        self.queued = 0.0
        """Seconds that its requests have waited for a place at a client."""
        self._start = self._end = clock()
        self._restored = trace is not None
        if trace is not None:
            self._restore(trace)

    def _restore(self, trace: Trace) -> None:
        """Continue where its record ends. Code begins again."""
        self._start, self.cost, self.queued = trace.start, trace.cost, trace.queued
        if not self.is_code:
            self.steps, self.turns, self._end = trace.steps, trace.turns, trace.end
            self.stop, self.cancel, self.exhausted = trace.stop, trace.cancel, trace.exhausted
            self.error, self.error_kind = trace.error, trace.error_kind
            if self.stop is not StopReason.LENGTH:
                self.result = Result(trace.returned or "", trace.status, trace.agent, trace.error, trace.error_kind)

    def become(self, other: Agent) -> None:
        """Take the prompt and the model of another agent that was not forked. Neither has begun to decode."""
        assert self.is_code or not self.ready, f"{self.id} has begun"
        self._backing = other._backing
        self._context, self._limit, self._seed = other._context, other._limit, other._seed

    def waited(self, seconds: float) -> None:
        """Record that a request of it waited for a place at a client."""
        self.queued += seconds

    def ended(self, stop: StopReason, returned: Result | str | None = None) -> None:
        """Set how it ended, unless it already has. Why its work stopped outweighs why it stopped decoding."""
        if self.result is None:
            self._keep()  # its request may still be aborting
            self.stop = self.stop or stop if stop is StopReason.DONE else stop
            status = _STATUS.get(self.stop, Status.NO_RETURN if returned is None else Status.OK)
            result = returned if isinstance(returned, Result) else Result(returned or "", status)
            if result.error is not None:
                self.error, self.error_kind = result.error, result.error_kind or ErrorKind.TOOL
            self.result = replace(result, source=self.id, error=self.error, error_kind=self.error_kind)
            self._end = self._clock()
            self._watch("end", self, result.status)

    def started(self) -> None:
        """Called when work on it begins: a fork may have waited for a slot."""
        self.ready = True
        if not self._restored:
            self._start = self._clock()
        self._watch("start", self, "")

    def trace(self) -> Trace:
        """The record of what it saw and did so far."""
        result = self.result or Result("", Status.CANCELLED)
        return Trace(
            agent=self.id,
            role=self.role,
            parent=self.parent,
            spans=tuple(self._context.spans),
            edges=tuple(self.edges),
            stop=self.stop or StopReason.CANCELLED,
            status=result.status,
            returned=result.text if result.text or result.status is Status.OK else None,
            cancel=self.cancel,
            error=self.error,
            error_kind=self.error_kind,
            exhausted=self.exhausted,
            model=self._backing.engine.model if self._backing else None,
            start=self._start,
            end=self._end,
            cost=self.cost,
            turns=self.turns,
            queued=self.queued,
        )

    def trace_so_far(self) -> Trace:
        """The record as if it ended now, with what it is sampling."""
        trace = self.trace()
        if self.result is not None:
            return trace
        return replace(trace, spans=self.spans_so_far, end=self._clock())
