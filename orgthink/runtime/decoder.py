"""Decoding within a budget: segments of a context, from one pause to the next, and their actions."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Any

from orgthink.engines.engine import (
    Chunk,
    Context,
    ContextFull,
    EngineError,
    FinishReason,
    Tools,
    advance_seed,
)
from orgthink.grammar.actions import Action, Answer, Command, Event, Join, Poll, Return, Scanner, Think
from orgthink.record.episode import (
    CancelSource,
    Edge,
    Exhausted,
    FormatFault,
    Message,
    Origin,
    Sampling,
    Span,
    StopReason,
)
from orgthink.runtime.budget import Account, BudgetExhausted
from orgthink.runtime.context import Backing, Draft, GrowingContext
from orgthink.util.errors import ErrorKind, Failure

_LEAST_SHARE = 1 / 64
"""Smallest share that remains of the text that may be cut from a prompt."""


@dataclass(frozen=True, slots=True)
class _Segment:
    """One request: the text from one pause to the next."""

    stream: AsyncGenerator[Chunk]
    """Chunks of the engine."""
    end: int
    """Decoding steps of the agent after the last token that was requested."""
    shares: bool
    """Whether other agents may spend the same tokens."""


Due = Callable[[], Command | None]
"""What the runtime does for an agent before its next token; `None` for nothing."""


def _without_thoughts(events: Iterable[Event]) -> Iterator[Action]:
    return (event.action for event in events if not isinstance(event.action, Think))


class Decoder(GrowingContext):
    """A context, and a model that goes on with it. An `Agent` is one with a name in an episode.

    Not shared between tasks: one task decodes at a time.
    """

    def __init__(
        self,
        name: str,
        messages: tuple[Message, ...],
        backing: Backing | None,
        account: Account,
        clock: Callable[[], float],
        watch: Callable[[str, Any, str], None],
        salt: str,
        limit: int | None = None,
        tools: Tools = (),
        place: Callable[[Any], Awaitable[None]] | None = None,
        seed: int | None = None,
        spans: Iterable[Span] = (),
    ) -> None:
        """`limit` is the tokens that it may sample. `spans` is what an earlier session has seen and sampled already."""
        super().__init__(messages, backing, clock, watch, tools, spans)
        self.id, self.account = name, account
        """The id is unique in the episode once it is forked: the parent's id and the key."""
        self.edges: list[Edge] = []
        self.faults: list[FormatFault] = []
        self.steps = 0
        """Decoding steps so far."""
        self.cancel: CancelSource | None = None
        self.error: str | None = None
        self.error_kind: ErrorKind | None = None
        self.exhausted: Exhausted | None = None
        self.turns = 0
        self.cost: float | None = None
        """Money or cost units spent so far; `None` when unknown."""
        self.ready = False
        """Whether it may act: the root at once, others when they are forked and have a place."""
        self._salt, self._place, self._seed = salt, place, seed
        self._limit = inf if limit is None else limit
        self._reserved = 0
        """Tokens of that limit that are kept for a final reply."""
        self._paid = False
        """Whether its call is paid, so that it continues without any cost left."""
        self._stream: AsyncGenerator[Chunk] | None = None
        self._paused = False

    @property
    def truncated(self) -> bool:
        """Whether a limit of tokens or of its budget cut it off."""
        return self.stop in (StopReason.LENGTH, StopReason.BUDGET)

    async def act(self, scanner: Scanner, due: Due = lambda: None) -> AsyncGenerator[Command]:
        """Decode, and yield what the agent does as soon as its text says so. Decoding goes on meanwhile.

        After a Join or a Poll it pauses: inject the result, then take the next action. It also pauses for what is
        `due`, between two tokens outside of tags and elements. It ends after an Answer or a Return, at the end of the
        text, or at a limit; `stop` then says why. If the caller leaves it earlier, decoding continues until
        `interrupt` or the next `act`. Raises EngineError.
        """
        await self.rest()
        while self.stop is None:
            command = None if scanner.incomplete else due()
            self._paused = command is not None
            if command is not None:
                yield command
                continue
            async for action in self._segment(scanner, due):
                yield action
            if self.stop is None and not self._paused:
                self.stop = StopReason.DONE

    async def complete(self, *stops: str) -> str:
        """Decode to the end of the text, or of one of these texts, and return what was decoded. Raises EngineError."""
        first = len(self._context.spans)
        async for _ in self.act(Scanner(*stops)):
            pass
        return "".join(span.text for span in self._context.spans[first:] if span.origin is Origin.SAMPLED)

    async def complete_within(self, prompts: Callable[[float], tuple[Message, ...]]) -> str:
        """Like `complete`, for a new agent whose prompt may be too long for its model.

        `prompts(share)` is the prompt with a share of what may be cut from it; the share is halved until the prompt
        fits. Raises EngineError.
        """
        share = 1.0
        while True:
            try:
                return await self.complete()
            except ContextFull:
                if share <= _LEAST_SHARE:
                    raise
                share /= 2
                self.reprompt(prompts(share))

    def reprompt(self, messages: tuple[Message, ...]) -> None:
        super().reprompt(messages)
        self.error = self.error_kind = self.exhausted = None

    def resume(self) -> None:
        """Let an agent that the limit of a segment cut off act again. The same scanner goes on within a tag."""
        assert self.stop is StopReason.LENGTH, f"{self.id} was not cut off by the limit of a segment: {self.stop}"
        self.stop = None

    def keep(self, share: float) -> None:
        """Keep a share of its tokens for a final reply after `reopen`."""
        self._reserved = ceil(share * self._limit) if self._limit < inf else 0
        self._limit -= self._reserved

    def reopen(self) -> None:
        """Let an agent that its budget or a deadline stopped act again, with the tokens that were kept."""
        self._limit, self._reserved = self._limit + self._reserved, 0
        if self.stop in (StopReason.BUDGET, StopReason.DEADLINE):
            self.stop = self.cancel = None

    def spend(self, cost: float) -> None:
        """Record what something cost, in money or cost units. An agent without any left neither decodes nor forks."""
        self.cost = (self.cost or 0) + cost
        self.account.spend("cost", cost)

    def pay(self, cost: float) -> None:
        """Spend the cost of a call before it, so that agents at work at once do not spend the same units. The call
        then continues even if nothing is left. Without any cost left nothing is spent, and the call does not begin."""
        self._paid = self.account.left("cost") > 0
        if self._paid:
            self.spend(cost)

    async def interrupt(self, text: str, source: str | None = None) -> None:
        """Stop decoding, inject, and decode on from there. No-op when finished."""
        if self._stream is not None or self._paused:
            await self.rest()
            self.inject(text, source)
            self._paused = True

    async def _segment(self, scanner: Scanner, due: Due) -> AsyncGenerator[Action]:
        """Decode up to the next pause or end. Raises EngineError."""
        segment = await self._begin(scanner)
        if segment is None:
            self._stop_at_budget()
            return
        finish: FinishReason | None = None
        try:
            async for chunk in segment.stream:
                for action in self._actions(chunk, scanner):
                    if isinstance(action, Join | Poll | Answer | Return):
                        await self._end_at(action)
                        yield action
                        return
                    yield action
                    await asyncio.sleep(0)  # a chunk may hold many actions: other tasks and deadlines have their turn
                if self._stream is not segment.stream:
                    return
                finish = chunk.finish or finish
                whole = chunk.pieces[-1:] not in ((), ("",)) and not scanner.incomplete  # no half of a character
                if finish is None and whole and due() is not None:
                    self._paused = True
                    return
                if finish is None and segment.shares and self.tokens_left < 1 and self.steps < segment.end:
                    finish = FinishReason.LENGTH  # other agents spent its tokens
                    break
            if finish is None:
                raise EngineError("the stream ended without saying why")
        except EngineError as error:
            self.stop = StopReason.ERROR
            self.failed(error)
            if isinstance(error, ContextFull):  # the model sampled nothing
                self.account.spend("turns", -1)
                self.turns -= 1
                self.exhausted = self._full()
            raise
        finally:
            counted = self._draft is None or self._draft.counts
            if self._stream is segment.stream:  # a generator that was left may be closed when the next one is under way
                await self.rest()
        if finish is FinishReason.LENGTH:  # the scanner stays open: a tag that was cut in two may be completed
            self._stop_at_length(short=counted and self.steps < segment.end)
            return
        if finish is FinishReason.STOP and scanner.quoted:  # at a tag that is text: the agent goes on
            self._paused = True
            return
        for action in _without_thoughts(scanner.close()):
            yield action

    async def _begin(self, scanner: Scanner) -> _Segment | None:
        """Ask the engine to go on, once there is a place; `None` if the budget is spent."""
        assert self._backing is not None, "a controller does not decode"
        assert self.ready, f"{self.id} is not the root, so it must be forked before it acts"
        if self._place is not None:
            await self._place(self)  # it may have lent its own while it waited for a fork
        await self.read_prompt()
        sampling = self._next_sampling()
        if sampling is None:
            return None
        self._draft = Draft(sampling, self._clock())
        requested = replace(sampling, stop=(*sampling.stop, *scanner.stops))
        stream = self._backing.engine.stream(replace(self._context, signals=scanner.signals), requested)
        self._stream = stream
        return _Segment(stream, self.steps + sampling.max_tokens, self.tokens_left < inf)

    def _actions(self, chunk: Chunk, scanner: Scanner) -> Iterator[Action]:
        """Take the tokens of a chunk and yield its actions, each after the tokens up to its end.

        If an action is answered by an interruption, later actions of the same piece are still yielded: their text is
        taken already.
        """
        if not chunk.pieces:
            assert self._draft is not None
            self._draft.counted, self._draft.billed = chunk.tokens, chunk.billed
        stream, taken = self._stream, 0
        for i, piece in enumerate(chunk.pieces, 1):
            events = scanner.feed(piece)
            if events or i == len(chunk.pieces):
                self._take(chunk, taken, i)
                taken = i
            yield from _without_thoughts(events)
            if self._stream is not stream:
                return

    async def _end_at(self, action: Action) -> None:
        """Stop decoding at an action: pause at a Join or a Poll, end at others."""
        await self.rest()
        self._paused = isinstance(action, Join | Poll)
        self.stop = None if self._paused else StopReason.DONE

    def _next_sampling(self) -> Sampling | None:
        """Settings of the next segment; `None` if the budget is spent."""
        assert self._backing is not None
        tokens, base = self.tokens_left, self._backing.sampling
        if tokens < 1 or self.account.left("turns") < 1 or (not self._paid and self.account.left("cost") <= 0):
            return None
        self.account.spend("turns", 1)
        self.turns += 1
        return replace(base, max_tokens=int(min(base.max_tokens, tokens)), seed=self._next_seed(base.seed))

    def _next_seed(self, seed: int | None) -> int | None:
        """Seed of the next segment: the agent's own continues from token to token; the common one differs by turn."""
        if self._seed is not None:
            return advance_seed(self._seed, self.steps)
        return None if seed is None else zlib.crc32(f"{seed}|{self._salt}|{self.id}|{self.turns}".encode())

    def _stop_at_length(self, *, short: bool) -> None:
        """The engine stopped at a limit. `short`: it gave fewer tokens than it was asked for."""
        if self.tokens_left < 1:
            self._stop_at_budget()
        elif short:  # its context is full
            self.stop, self.exhausted = StopReason.BUDGET, self._full()
        else:
            self.stop = StopReason.LENGTH

    def _stop_at_budget(self) -> None:
        self.stop = StopReason.BUDGET
        own = Exhausted("tokens", self.steps, self._limit + self._reserved) if self.steps >= self._limit else None
        self.exhausted = own or self.account.exhausted("tokens", "turns", "cost")

    def _full(self) -> Exhausted:
        used = sum(span.tokens for span in self._context.spans)
        return Exhausted("context", used, used)

    @property
    def tokens_left(self) -> float:
        """Tokens that it may still sample, by its own limit and the episode's; infinity without one."""
        return min(self._limit - self.steps, self.account.left("tokens"))

    def _take(self, chunk: Chunk, first: int, last: int) -> None:
        """Take the pieces from `first` to before `last`."""
        draft = self._draft
        assert draft is not None
        if draft.pieces and draft.version != chunk.policy_version:  # other weights, another span
            self._keep()
            self._draft = draft = Draft(draft.sampling, self._clock())
        before = draft.tokens
        draft.add(chunk, first, last)
        self.steps += draft.tokens - before
        self.account.spend("tokens", draft.tokens - before)
        self._watch("text", self, "".join(chunk.pieces[first:last]))

    async def rest(self) -> None:
        """Stop decoding, if it is: abort the request and keep what was sampled as a span."""
        if self._stream is not None:
            stream, self._stream = self._stream, None
            if not getattr(stream, "ag_running", False):  # else a task that was left behind is closing it
                await stream.aclose()
        self._keep()

    def _keep(self) -> None:
        """Make a span of what was sampled since the last one."""
        if self._draft is not None:
            draft, self._draft = self._draft, None
            span = draft.span(self._clock())
            if span.tokens:
                self._context.spans.append(span)
                self._recount(draft.tokens, span.tokens)

    @property
    def spans_so_far(self) -> tuple[Span, ...]:
        """What it has seen and said, with what it is sampling."""
        draft = () if self._draft is None or not self._draft.pieces else (self._draft.span(self._clock()),)
        return (*self._context.spans, *draft)

    @property
    def conversation(self) -> tuple[Message, ...]:
        """The same as a conversation, for a model that does not know its tokens."""
        return tuple(Context(self.messages, list(self.spans_so_far)).turns)

    def inherited(self) -> tuple[Span, ...]:
        """Its context so far, as the beginning of another agent's. What it sampled is injected there: it is neither
        trained nor counted again."""
        now = self._clock()

        def seen(span: Span) -> Span:
            if span.origin is Origin.PROMPT:
                return span
            source = self.id if span.origin is Origin.SAMPLED else span.source
            own = {"logprobs": None, "billed": None, "start": now, "end": now}
            return replace(span, origin=Origin.INJECTED, source=source, **own)

        return tuple(map(seen, self.spans_so_far))

    def _recount(self, counted: int, tokens: int) -> None:
        """Count steps in tokens if the pieces of the server are not tokens. Edges and faults move in proportion."""
        if counted == tokens:
            return
        begun = self.steps - counted
        self.steps = begun + tokens
        self.account.spend("tokens", tokens - counted)

        def moved(at: int) -> int:
            return at if at <= begun else begun + ceil((at - begun) * tokens / counted)

        self.edges = [replace(edge, at=moved(edge.at)) for edge in self.edges]
        self.faults = [replace(fault, at=moved(fault.at)) for fault in self.faults]

    def failed(self, error: Failure | BudgetExhausted) -> None:
        """Record what went wrong, and which boundary it crossed."""
        self.error, self.error_kind = str(error), error.kind
        if isinstance(error, BudgetExhausted):
            self.exhausted = error.exhausted
