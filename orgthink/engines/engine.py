"""The base class of engines, which sample tokens. Other rooms use only this class."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from orgthink.models.context import Context as Context
from orgthink.models.context import Tools as Tools
from orgthink.record.episode import Billed, Message, Origin, Sampling, Span
from orgthink.util.errors import ContextFull as ContextFull
from orgthink.util.errors import EngineError as EngineError
from orgthink.util.errors import EngineUnavailable as EngineUnavailable

if TYPE_CHECKING:
    from torch import Tensor

    from orgthink.models.lora import Adapter
    from orgthink.models.tokenizer import Tokenizer

GAMMA = 0x9E3779B97F4A7C15
"""Step of splitmix64, the random generator of the local engine."""


def advance_seed(seed: int, count: int) -> int:
    """The seed whose first random number is number `count` of `seed`.

    A text that is sampled in several requests then has the same tokens as in one request, on engines whose draws depend
    only on the seed and the position.
    """
    return (seed + count * GAMMA) % 2**64


class FinishReason(StrEnum):
    """Why a stream ended."""

    STOP = "stop"
    """A stop text was completed; it is part of the output."""
    EOS = "eos"
    """The model ended its text."""
    LENGTH = "length"
    """`max_tokens`, or the end of the model's context."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The next tokens of a stream."""

    pieces: tuple[str, ...]
    """Text of each token; a token that ends inside a character has an empty piece."""
    token_ids: tuple[int, ...] | None = None
    """One for each piece; `None` where the engine gives none."""
    logprobs: tuple[float, ...] | None = None
    """One for each piece, under the sampling distribution; `None` where unknown."""
    finish: FinishReason | None = None
    """Set on the last chunk."""
    policy_version: str | None = None
    """Weights that sampled these tokens."""
    tokens: int | None = None
    """On the last chunk: tokens of the whole stream by the server's count, where pieces are not tokens."""
    billed: Billed | None = None
    """On the last chunk: tokens that the server bills for the request; `None` if unknown."""
    reasoning: str = ""
    """Reasoning that the server sends separately from the text."""


MOST_FAILURES = 5
"""Failed requests in a row after which no more are worth a try."""


class Engine:
    """Streams tokens. One engine serves any number of streams at once.

    A subclass for text needs `model` and `stream`; an engine that takes token ids inherits `TokenEngine`.
    """

    model: str = ""
    """Name of the model, for the record."""
    native_calls: bool = False
    """Whether the engine offers the tools of a context itself and returns the model's calls as text. Otherwise the
    prompt must describe the tools and how to call them."""
    max_context: int | None = None
    """Tokens of the model's context, the reply included; `None` if unknown."""
    failures: tuple[str, ...] = ()
    """Messages of the last requests if all of them failed, at most `MOST_FAILURES`: then the server is gone. A request
    that a server refuses does not count."""
    on_loop: bool = False
    """Whether the engine decodes on the event loop, so that results do not depend on timing."""

    @property
    def notice(self) -> str | None:
        """A line for the user about how a large model is computed."""
        return None

    @property
    def updatable(self) -> bool:
        """Whether a trainer can change the weights: the class defines `update_weights`."""
        return type(self).update_weights is not Engine.update_weights

    def prompt(self, messages: tuple[Message, ...], tools: Tools = ()) -> Span:
        """The prompt span of these turns, as the model will see it. Only engines with native calls get `tools`."""
        text = "\n\n".join(message.content for message in messages)
        # In parts, as the interpreter does nothing else during a split. A word between two parts counts twice.
        return Span(Origin.PROMPT, text, sum(len(text[at : at + 65536].split()) for at in range(0, len(text), 65536)))

    def injection(self, text: str, around: tuple[str, str] = ("", "")) -> tuple[str, tuple[int, ...] | None]:
        """Text to append to a context, as the model will see it, and its ids.

        The name of a special token within `text` is plain text. The texts `around` it, before and after, come from the
        organization: a tag there is the token that the model knows.
        """
        return text.join(around), None

    def turn(self, context: Context, text: str) -> tuple[str, tuple[int, ...] | None]:
        """The same for the user's next turn, after a reply: with the text that ends the reply's turn, unless the model
        sampled that itself, and with the text that begins the next reply. Engines without turns add only the text."""
        return text, None

    def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        """Continue the context. Closing the generator aborts the request: when `aclose` has returned, no further token
        is sampled for it.

        A context that is full ends it with LENGTH before `max_tokens`. Raises EngineError, ContextFull if the prompt
        itself does not fit.
        """
        raise NotImplementedError

    async def update_weights(self, weights: Mapping[str, Tensor], version: str) -> None:
        """Replace the weights, given under Hugging Face names, from the next step on.

        Chunks name the version that sampled them. Nothing computed with older weights is used afterwards: the contexts
        of open streams are read again. Raises ValueError if the weights do not fit.
        """
        raise NotImplementedError

    def for_role(self, role: str) -> Engine:
        """The engine of a role's agents: this one, or the same with the adapter that the model has for the role."""
        return self

    async def update_adapters(self, adapters: Mapping[str, Adapter], version: str) -> None:
        """Replace the adapters of roles; see `update_weights`."""
        raise NotImplementedError

    def forget(self) -> None:
        """Drop what is kept of requests that ended, so that later results do not depend on them."""

    async def aclose(self) -> None:
        """Release all resources; open streams end with EngineError."""


class TokenEngine(Engine):
    """An engine that takes token ids: prompts, injections and turns come from its tokenizer."""

    _tokenizer: Tokenizer

    def prompt(self, messages: tuple[Message, ...], tools: Tools = ()) -> Span:
        return self._tokenizer.prompt(messages, tools)

    def injection(self, text: str, around: tuple[str, str] = ("", "")) -> tuple[str, tuple[int, ...]]:
        return self._tokenizer.injection(text, around)

    def turn(self, context: Context, text: str) -> tuple[str, tuple[int, ...]]:
        return self._tokenizer.turn(text, context)

    def require_room(self, context: Context, limit: int) -> bool:
        """Whether the context leaves room for a token. ContextFull if a prompt alone does not."""
        size = sum(len(span.token_ids or ()) for span in context.spans)  # a list of all would be long
        if size >= limit and len(context.spans) == 1:
            raise ContextFull(
                f"the prompt of {context.spans[0].tokens} tokens does not fit the model's context of {limit}"
            )
        return size < limit


class StopFinder:
    """Reads one stream. The result does not depend on how the text is cut into pieces."""

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._last = {stop[-1] for stop in self._stops}
        self._tail_length = max((len(stop) for stop in self._stops), default=1) - 1
        self._tail = ""

    def feed(self, piece: str) -> int | None:
        """Characters of the piece up to the end of the first stop text it completes; `None` if it completes none."""
        text, before = self._tail + piece, len(self._tail)
        if not self._last.isdisjoint(piece):
            ends = [start + len(stop) for stop in self._stops if (start := text.find(stop)) >= 0]
            if ends:
                return min(ends) - before
        self._tail = text[-self._tail_length :] if self._tail_length else ""
        return None
