"""One agent at work: a context that grows by decoding and by injection, and records itself."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, NamedTuple

from orgthink.engines.engine import Chunk, Context, Engine, EngineError, Finish
from orgthink.episode import CancelSource, Edge, Message, Origin, Sampling, Span, Status, StopReason, Trace
from orgthink.grammar.actions import Action, Answer, Event, Join, Malformed, Return, Scanner, Think
from orgthink.runtime.budget import Account


@dataclass(frozen=True, slots=True)
class Result:
    """What an agent or a tool hands to its parent."""

    text: str
    """What it returned; empty if it returned nothing."""
    status: Status = Status.OK
    """How it went."""
    source: str | None = None
    """Agent that returned it."""


class Role(NamedTuple):
    """What stands behind a role: which engine decodes for it, and how."""

    engine: Engine
    sampling: Sampling


Watcher = Callable[[str, "Agent", str], None]
"""Called with `start`, `text`, `fork`, `join` or `end`, the agent, and text, a key or a status."""


class Plain:
    """A scanner for agents without protocol: everything is text."""

    stops: tuple[str, ...] = ()

    def feed(self, text: str) -> list[Event]:
        return []

    def close(self) -> list[Event]:
        return []


class Agent:
    """An agent of one episode. Organizations get one from `Session.agent` and let it act.

    Not shared between tasks: one task decodes for an agent at a time.
    """

    def __init__(
        self,
        role: str,
        messages: tuple[Message, ...],
        backing: Role | None,
        account: Account,
        clock: Callable[[], float],
        watch: Watcher,
        salt: str,
        limit: int | None = None,
    ) -> None:
        self.role, self.account = role, account
        self.id = role
        """Unique in the episode once it is forked: the parent's id and the key."""
        self.parent: str | None = None
        self.forks: list[Edge] = []
        self.joins: list[Edge] = []
        self.steps = 0
        """Decoding steps so far."""
        self.stop: StopReason | None = None
        """Why it stopped; `None` while it may go on."""
        self.cancel: CancelSource | None = None
        self.error: str | None = None
        self.result: Result | None = None
        self.turns = 0
        self._backing, self._clock, self._watch, self._salt = backing, clock, watch, salt
        self._limit = float("inf") if limit is None else limit
        self._context = Context(messages)
        if backing is not None:
            self._context.spans.append(backing.engine.prompt(messages))
        self._stream: AsyncGenerator[Chunk] | None = None
        self._draft: _Draft | None = None
        self._paused = False
        self._start = self._end = clock()

    @property
    def decodes(self) -> bool:
        """Whether a model stands behind it; not so for code and tools."""
        return self._backing is not None

    async def act(self, scanner: Scanner) -> AsyncGenerator[Action]:
        """Decode, and yield what the agent does as soon as its text says so. Decoding goes on meanwhile.

        After a Join it pauses: inject the result, then take the next action. It ends after an Answer or a
        Return, at the end of the text, or at a limit; `stop` then says why. Raises EngineError.
        """
        while self.stop is None:
            self._paused = False
            async for action in self._segment(scanner):
                yield action
            if self.stop is None and not self._paused:
                self.stop = StopReason.DONE

    async def complete(self) -> str:
        """Decode to the end of the text and return what was decoded. Raises EngineError."""
        first = len(self._context.spans)
        async for _ in self.act(Plain()):
            pass
        return "".join(span.text for span in self._context.spans[first:])

    def inject(self, text: str, source: str | None = None) -> None:
        """Append text that the model did not sample. It is never read as protocol.

        An agent that was done may act again after it, in a next round.
        """
        assert self._backing is not None, "a controller has no context"
        assert self._draft is None, "an agent that decodes is interrupted first: see interrupt"
        seen, ids = self._backing.engine.injection(text)
        now = self._clock()
        tokens = len(seen.split()) if ids is None else len(ids)
        span = Span(Origin.INJECTED, seen, tokens, ids, start=now, end=now, source=source)
        self._context.spans.append(span)
        if self.stop is StopReason.DONE:
            self.stop = None

    async def interrupt(self, text: str, source: str | None = None) -> None:
        """Stop decoding, inject, and decode on from there. Text that has come to its end is left alone."""
        if self._stream is not None:
            await self.rest()
            self.inject(text, source)
            self._paused = True

    async def _segment(self, scanner: Scanner) -> AsyncGenerator[Action]:
        """Decode up to the next pause or end."""
        assert self._backing is not None, "a controller does not decode"
        sampling = self._next_sampling(scanner)
        if sampling is None:
            self.stop = StopReason.BUDGET
            return
        self._draft = _Draft(sampling, self._clock())
        self._stream = stream = self._backing.engine.stream(self._context, sampling)
        finish: Finish | None = None
        try:
            async for chunk in stream:
                for i, piece in enumerate(chunk.pieces):
                    self._take(chunk, i)
                    for event in scanner.feed(piece):
                        if isinstance(event.action, Join | Answer | Return):
                            await self.rest()
                            self._paused = isinstance(event.action, Join)
                            self.stop = None if self._paused else StopReason.DONE
                            yield event.action
                            return
                        if not isinstance(event.action, Think):
                            yield event.action
                            if self._stream is not stream:
                                return
                finish = chunk.finish or finish
                self._draft.counted = chunk.tokens
                if finish is None and self._tokens_left() < 1:  # others spent what this segment was promised
                    finish = Finish.LENGTH
                    break
            if finish is None:
                raise EngineError("the stream ended without saying why")
        except EngineError as error:
            self.stop, self.error = StopReason.ERROR, str(error)
            raise
        finally:
            await self.rest()
        cut = finish is Finish.LENGTH
        if cut:
            self.stop = StopReason.BUDGET if self._tokens_left() < 1 else StopReason.LENGTH
        for event in scanner.close():
            if not isinstance(event.action, Think | Malformed if cut else Think):
                yield event.action

    def _next_sampling(self, scanner: Scanner) -> Sampling | None:
        """Settings of the next segment; `None` if the budget is spent."""
        assert self._backing is not None
        tokens, base = self._tokens_left(), self._backing.sampling
        if tokens < 1 or self.account.left("turns") < 1 or self.account.left("cost") <= 0:
            return None
        self.account.spend("turns", 1)
        self.turns += 1
        seed = None if base.seed is None else zlib.crc32(f"{base.seed}|{self._salt}|{self.id}|{self.turns}".encode())
        return replace(base, max_tokens=int(min(base.max_tokens, tokens)), seed=seed, stop=(*base.stop, *scanner.stops))

    def _tokens_left(self) -> float:
        """Of its own and of the episode."""
        return min(self._limit - self.steps, self.account.left("tokens"))

    def _take(self, chunk: Chunk, i: int) -> None:
        assert self._draft is not None
        self._draft.add(chunk, i)
        self.steps += 1
        self.account.spend("tokens", 1)
        self._watch("text", self, chunk.pieces[i])

    async def rest(self) -> None:
        """Stop decoding, if it is: abort the request and keep what was sampled as a span."""
        if self._stream is not None:
            stream, self._stream = self._stream, None
            await stream.aclose()
        self._keep()

    def _keep(self) -> None:
        """Make a span of what was sampled since the last one."""
        if self._draft is not None:
            draft, self._draft = self._draft, None
            span = draft.span(self._clock())
            if span.tokens:
                self._context.spans.append(span)
                self._recount(len(draft.pieces), span.tokens)

    def _recount(self, pieces: int, tokens: int) -> None:
        """Count steps in tokens where the server sent other pieces; what was forked meanwhile moves in proportion."""
        if pieces != tokens:
            begun = self.steps - pieces
            self.steps = begun + tokens
            for i, fork in enumerate(self.forks):
                if fork.at > begun:
                    self.forks[i] = replace(fork, at=begun + ceil((fork.at - begun) * tokens / pieces))

    def ended(self, stop: StopReason, result: Result) -> None:
        """Set how it ended, unless it already had."""
        if self.result is None:
            self._keep()  # its request may still be aborting
            self.stop = self.stop or stop
            self.result = replace(result, source=self.id)
            self._end = self._clock()
            self._watch("end", self, result.status)

    def started(self) -> None:
        """Called when work on it begins: a fork may have waited for a slot."""
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
            forks=tuple(self.forks),
            joins=tuple(self.joins),
            stop=self.stop or StopReason.CANCELLED,
            status=result.status,
            returned=result.text if result.status is Status.OK else None,
            cancel=self.cancel,
            error=self.error,
            model=self._backing.engine.model if self._backing else None,
            start=self._start,
            end=self._end,
            turns=self.turns,
        )


class _Draft:
    """A sampled span in the making."""

    def __init__(self, sampling: Sampling, start: float) -> None:
        self._sampling, self._start = sampling, start
        self.pieces: list[str] = []
        self.counted: int | None = None
        self._ids: list[int] = []
        self._logprobs: list[float] = []
        self._version: str | None = None

    def add(self, chunk: Chunk, i: int) -> None:
        self.pieces.append(chunk.pieces[i])
        if chunk.token_ids is not None:
            self._ids.append(chunk.token_ids[i])
        if chunk.logprobs is not None:
            self._logprobs.append(chunk.logprobs[i])
        self._version = chunk.policy_version

    def span(self, end: float) -> Span:
        n = len(self.pieces)
        return Span(
            Origin.SAMPLED,
            "".join(self.pieces),
            self.counted or n,
            token_ids=_complete(self._ids, n),
            logprobs=_complete(self._logprobs, n),
            policy_version=self._version,
            sampling=self._sampling,
            start=self._start,
            end=end,
        )


def _complete(values: list[Any], n: int) -> tuple[Any, ...] | None:
    """All values, or `None` if the engine did not give every one."""
    return tuple(values) if len(values) == n else None
