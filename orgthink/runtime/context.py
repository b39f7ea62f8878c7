"""The context of an agent's model: its prompt, text that is injected, and the span that it is sampling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import takewhile
from typing import Any, NamedTuple

from orgthink.engines.engine import Chunk, Context, Engine, Tools
from orgthink.record.episode import Billed, Message, Origin, Sampling, Span, StopReason, likely_tokens
from orgthink.util.redaction import redact
from orgthink.util.threads import SHORT, UNKNOWN, off_loop

MOST_CHARACTERS = 32
"""Characters of a text that are read for each token that it may have."""


class Backing(NamedTuple):
    """Engine and sampling of a role."""

    engine: Engine
    sampling: Sampling


LongPrompts = tuple[asyncio.Lock, dict[tuple[Any, ...], Span]]
"""Long prompts of an episode by engine, messages and tools, which its agents share, and the turn to read one."""


class GrowingContext:
    """What the model of an agent has seen and said. Code has an empty one."""

    def __init__(
        self,
        messages: tuple[Message, ...],
        backing: Backing | None,
        clock: Callable[[], float],
        watch: Callable[[str, Any, str], None],
        tools: Tools = (),
        spans: Iterable[Span] = (),
    ) -> None:
        """`spans` is what an earlier session has seen and said already."""
        self.stop: StopReason | None = None
        """Why it stopped; `None` while it may go on."""
        self._clock, self._watch = clock, watch
        self._backing = backing
        self.long_prompts: LongPrompts = asyncio.Lock(), {}
        self._begin_context(Context(messages, list(spans), tools))
        self._draft: Draft | None = None
        """The span that it is sampling."""

    @property
    def is_code(self) -> bool:
        """Whether it has no model: a tool, or the organization's own code."""
        return self._backing is None

    @property
    def longest_reply(self) -> int:
        """Most tokens of a reply of its model; code has none."""
        return 0 if self._backing is None else self._backing.sampling.max_tokens

    @property
    def messages(self) -> tuple[Message, ...]:
        """Its prompt as turns."""
        return self._context.messages

    @property
    def tools(self) -> Tools:
        """What it may call natively."""
        return self._context.tools

    @property
    def text(self) -> str:
        """Everything after its prompt."""
        return "".join(span.text for span in self._context.spans if span.origin is not Origin.PROMPT)

    @property
    def sampled(self) -> str:
        """Everything that it sampled itself, without what was injected."""
        return "".join(span.text for span in self._context.spans if span.origin is Origin.SAMPLED)

    @property
    def last_sampled(self) -> str:
        """What it sampled since its prompt, or since text was injected."""
        spans = takewhile(lambda span: span.origin is Origin.SAMPLED, reversed(self._context.spans))
        return "".join(reversed([span.text for span in spans]))

    def inject(self, text: str, source: str | None = None, around: tuple[str, str] = ("", "")) -> None:
        """Append text that the model did not sample, in the middle of what it says. It is never read as protocol.

        The name of a special token in the text stays plain text. What an organization writes
        itself before and after it, such as the tag that ends a result, is `around` it.
        An agent that was done may act again after it.
        """
        self._append(*self._idle_engine.injection(text, around), source)
        if self.stop is StopReason.DONE:
            self.stop = None

    def tell(self, text: str, source: str | None = None) -> None:
        """Append text as the next turn, after a reply that is over: what the agent says next is another reply.

        A reply that the limit of a segment cut off is over as well. The text is never read as protocol.
        """
        self._append(*self._idle_engine.turn(self._context, text), source)
        if self.stop in (StopReason.DONE, StopReason.LENGTH):
            self.stop = None

    def cut(self, text: str, tokens: int) -> str:
        """The beginning of a text without secrets, at most so many tokens long as this agent would see it.

        Where its engine knows no ids, three bytes count as a token: the number of words says little about its length. A
        longer text is not read to its end: that would block the event loop for seconds.
        """
        text = redact(text)[: tokens * MOST_CHARACTERS]  # before it is cut: no half of a secret is left
        if self._length(text) <= tokens:
            return text
        most, over = 0, len(text)  # characters that fit, and that do not
        while over - most > 1:
            half = (most + over) // 2
            most, over = (half, over) if self._length(text[:half]) <= tokens else (most, half)
        return text[:most]

    def _length(self, text: str) -> int:
        seen, ids = self._idle_engine.injection(text)
        return likely_tokens(seen) if ids is None else len(ids)

    def reprompt(self, messages: tuple[Message, ...]) -> None:
        """Replace a prompt that its model has not read."""
        assert self._backing is not None and not self._context.begun, "its model has begun"
        self._begin_context(Context(messages, [], self._context.tools))
        self.stop = None

    def _begin_context(self, context: Context) -> None:
        """Take a new context, and read its prompt unless that is long: see `read_prompt`."""
        self._context = context
        if self._backing is not None and not context.spans and sum(len(m.content) for m in context.messages) <= SHORT:
            context.spans.append(self._prompted(self._backing.engine, context.messages))

    async def read_prompt(self) -> None:
        """Read a prompt that is long, before the first token: in a thread, unless the engine decodes on the loop, and
        once for all agents of the episode that have it."""
        spans, messages, (turn, read) = self._context.spans, self._context.messages, self.long_prompts
        if self._backing is None or (spans and spans[0].origin is Origin.PROMPT):
            return
        engine = self._backing.engine
        key = (id(engine), messages, str(self._context.tools))
        async with turn:
            if key not in read:
                read[key] = await off_loop(0 if engine.on_loop else UNKNOWN, self._prompted, engine, messages)
        spans.insert(0, read[key])

    def _prompted(self, engine: Engine, messages: tuple[Message, ...]) -> Span:
        """The span of a prompt. Engines without native calls are not given the tools. A prompt that
        does not fit keeps only so many ids as show that: to store millions would hold up other threads."""
        tools = self._context.tools if engine.native_calls else ()
        span = engine.prompt(messages, tools) if tools else engine.prompt(messages)
        return (
            span
            if engine.max_context is None or span.token_ids is None
            else replace(span, token_ids=span.token_ids[: engine.max_context + 1])
        )

    @property
    def _idle_engine(self) -> Engine:
        """Its engine, while it does not decode."""
        assert self._backing is not None, "a controller has no context"
        assert self._draft is None, "an agent that decodes is interrupted first: see interrupt"
        return self._backing.engine

    def _append(self, seen: str, ids: tuple[int, ...] | None, source: str | None) -> None:
        now = self._clock()
        tokens = len(seen.split()) if ids is None else len(ids)
        self._context.spans.append(Span(Origin.INJECTED, seen, tokens, ids, start=now, end=now, source=source))
        self._watch("inject", self, seen)


class Draft:
    """Text that an agent sampled since the last span."""

    def __init__(self, sampling: Sampling, start: float) -> None:
        self.sampling, self._start = sampling, start
        self.pieces: list[str] = []
        self.counted: int | None = None
        """Tokens by the server's count; `None` where it does not count."""
        self.billed: Billed | None = None
        """What the server bills; `None` where it does not say."""
        self.version: str | None = None
        self._ids: list[int] = []
        self._logprobs: list[float] = []
        self._reasoning: list[str] = []

    @property
    def counts(self) -> bool:
        """Whether its pieces are tokens, or the server has counted these."""
        return self.counted is not None or len(self._ids) == len(self.pieces)

    @property
    def tokens(self) -> int:
        """So far: a piece counts as one. No more than were asked for, since it may also be a part of one."""
        return min(len(self.pieces), self.sampling.max_tokens)

    def add(self, chunk: Chunk, first: int, last: int) -> None:
        """Take the chunk's pieces from `first` to before `last`."""
        self.pieces += chunk.pieces[first:last]
        if chunk.token_ids is not None:
            self._ids += chunk.token_ids[first:last]
        if chunk.logprobs is not None:
            self._logprobs += chunk.logprobs[first:last]
        if chunk.reasoning and first == 0:
            self._reasoning.append(chunk.reasoning)
        self.version = chunk.policy_version
        if last == len(chunk.pieces):  # the count is of all pieces
            self.counted = chunk.tokens
        self.billed = chunk.billed or self.billed

    def span(self, end: float) -> Span:
        """The count of a server is believed, from what the text is at least to what the server was asked for."""
        n, text, tokens = len(self.pieces), "".join(self.pieces), self.tokens
        reasoning = "".join(self._reasoning)
        if self.counted:
            tokens = max(tokens if len(self._ids) == n else 1, min(self.counted, self.sampling.max_tokens))
        return Span(
            Origin.SAMPLED,
            text,
            tokens,
            token_ids=_complete(self._ids, n),
            logprobs=_complete(self._logprobs, n),
            policy_version=self.version,
            sampling=self.sampling,
            start=self._start,
            end=end,
            billed=self.billed,
            reasoning=reasoning or None,
        )


def _complete(values: list[Any], n: int) -> tuple[Any, ...] | None:
    """All values, or `None` if the engine did not give every one."""
    return tuple(values) if len(values) == n else None
