"""What a model has seen and said: a context that grows by text that is injected, and by what a decoder adds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Any, NamedTuple

from orgthink.engines.engine import Context, Engine, Tools
from orgthink.record.episode import Message, Origin, Sampling, Span, StopReason, likely_tokens
from orgthink.runtime.draft import Draft
from orgthink.util.redaction import redact

MOST_CHARACTERS = 32
"""Of each token that a text may have, read before it is cut."""


class Backing(NamedTuple):
    """What stands behind a role: which engine decodes for it, and how."""

    engine: Engine
    sampling: Sampling


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
        self._act_by(backing)
        self._edited = False
        """Whether somebody edited its prompt."""
        self._context = Context(messages, list(spans), tools)
        if backing is not None and not self._context.spans:
            self._context.spans.append(backing.engine.prompt(messages))
        self._draft: Draft | None = None
        """What it says just now."""

    def _act_by(self, backing: Backing | None) -> None:
        self._backing = backing
        engine = None if backing is None else backing.engine
        self.person: str | None = None if engine is None else engine.person
        """Who writes for it, if a person does."""

    @property
    def decodes(self) -> bool:
        """Whether a model stands behind it; not so for people, code and tools."""
        return self._backing is not None and self.person is None

    @property
    def is_code(self) -> bool:
        """Whether neither a model nor a person stands behind it."""
        return self._backing is None

    @property
    def messages(self) -> tuple[Message, ...]:
        """Its prompt as turns."""
        return self._context.messages

    @property
    def native_calls(self) -> bool:
        """Whether its engine tells the model of the agent's tools, so that its prompt need not."""
        return self._backing is not None and self._backing.engine.native_calls

    @property
    def text(self) -> str:
        """Everything after its prompt."""
        return "".join(span.text for span in self._context.spans if span.origin is not Origin.PROMPT)

    @property
    def sampled(self) -> str:
        """Everything that it sampled itself, or a person wrote, without what was injected."""
        return "".join(span.text for span in self._context.spans if span.origin.own)

    @property
    def last_sampled(self) -> str:
        """What it sampled, or a person wrote, since its prompt, or since text was injected."""
        spans = takewhile(lambda span: span.origin.own, reversed(self._context.spans))
        return "".join(reversed([span.text for span in spans]))

    def inject(self, text: str, source: str | None = None, around: tuple[str, str] = ("", "")) -> None:
        """Append text that the model did not sample, in the middle of what it says. It is never read as protocol.

        The text may be anybody's: the name of a special token in it stays plain text. What an organization writes
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

        Where its engine knows no ids, three bytes count as a token: words say little of how long a text is. A longer
        text is not read to its end: that would take seconds, in which nobody else goes on.
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

    @property
    def _has_room(self) -> bool:
        """Whether its prompt leaves room for a reply, or nobody knows."""
        assert self._backing is not None
        engine, (prompt, *_) = self._backing.engine, self._context.spans
        limit = engine.max_context
        unknown = prompt.token_ids is None
        tokens = likely_tokens(prompt.text) if unknown else prompt.tokens
        return limit is None or tokens + min(self._backing.sampling.max_tokens, limit // 4) <= limit

    def reprompt(self, messages: tuple[Message, ...], *, edited: bool = False) -> None:
        """Put another prompt in place of one that its model has not read. `edited`: somebody wrote it, and means it."""
        self._edited = edited
        assert self._backing is not None and not self._context.begun, "its model has begun"
        self._context = Context(messages, [self._backing.engine.prompt(messages)], self._context.tools)
        self.stop = None

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
