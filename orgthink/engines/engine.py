"""The protocol of engines, which sample tokens. Other modules know only this protocol."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from orgthink.models.context import Context as Context
from orgthink.models.context import Tools as Tools
from orgthink.record.episode import Billed, Message, Origin, Sampling, Span
from orgthink.util.errors import ContextFull as ContextFull
from orgthink.util.errors import EngineError as EngineError
from orgthink.util.errors import EngineUnavailable as EngineUnavailable
from orgthink.util.errors import StreamDropped as StreamDropped

if TYPE_CHECKING:
    from torch import Tensor


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
    """On the last chunk: tokens of the whole stream by the server's count, where a piece may be more or less than a
    token."""
    billed: Billed | None = None
    """On the last chunk: what the server bills for the request; `None` where it does not say."""
    reasoning: str = ""
    """What the model thought while it sampled these tokens, where that is no part of their text."""


class Engine(Protocol):
    """Streams tokens. One engine serves any number of streams at once.

    A class that inherits from this has a `model` and writes `stream`, if it takes text: the rest is here.
    """

    model: str
    """Name of the model, for the record."""
    native_calls: bool = False
    """Whether the engine offers the tools of a context itself and returns the model's calls as text. Otherwise the
    prompt must describe the tools and how to call them."""

    def prompt(self, messages: tuple[Message, ...]) -> Span:
        """The prompt span of these turns, as the model will see it."""
        text = "\n\n".join(message.content for message in messages)
        return Span(Origin.PROMPT, text, len(text.split()))

    def injection(self, text: str, around: tuple[str, str] = ("", "")) -> tuple[str, tuple[int, ...] | None]:
        """Text to append to a context, as the model will see it, and its ids.

        The text is others': the name of a special token in it is plain text. What stands `around` it, before and after,
        is the organization's own: a tag there is the token that the model knows.
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
        itself does not fit, StreamDropped if the same stream may come to its end another time.
        """
        ...

    async def aclose(self) -> None:
        """Release all resources; open streams end with EngineError."""


@runtime_checkable
class Bounded(Protocol):
    """An engine that may know how much its model reads."""

    @property
    def max_context(self) -> int | None:
        """Tokens of the model's context, the reply included; `None` if that is not known."""
        ...


@runtime_checkable
class Staffed(Protocol):
    """An engine behind which a person writes. That takes no decoding steps, no tokens and no place in the pool."""

    @property
    def person(self) -> str:
        """Who it is, for the record."""
        ...


@runtime_checkable
class OnLoop(Protocol):
    """An engine that may decode on the event loop."""

    @property
    def on_loop(self) -> bool:
        """Whether it does: then what else runs there decides what it decodes together."""
        ...


class Updatable(Engine, Protocol):
    """An engine whose weights a trainer can change while it runs."""

    async def update_weights(self, weights: Mapping[str, Tensor], version: str) -> None:
        """Replace the weights, given under Hugging Face names, from the next step on.

        Chunks name the version that sampled them. Nothing computed with older weights is used afterwards: the contexts
        of open streams are read again. Raises ValueError if the weights do not fit.
        """
        ...
