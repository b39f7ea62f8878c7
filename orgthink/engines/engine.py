"""Where tokens come from: one protocol, so that nothing else knows which engine it has."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from orgthink.episode import Message, Origin, Sampling, Span
from orgthink.errors import EngineError as EngineError
from orgthink.errors import EngineUnavailable as EngineUnavailable

if TYPE_CHECKING:
    from torch import Tensor


class Finish(StrEnum):
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
    """One for each piece; `None` where the engine does not tell."""
    logprobs: tuple[float, ...] | None = None
    """One for each piece, under the distribution that was sampled from; `None` where unknown."""
    finish: Finish | None = None
    """Set on the last chunk."""
    policy_version: str | None = None
    """Weights that sampled these tokens."""
    tokens: int | None = None
    """On the last chunk: tokens of the whole stream by the server's count, where pieces are not tokens."""


Tools = tuple[Mapping[str, Any], ...]
"""What a model may call, each as `{"name", "description", "parameters"}` with a JSON Schema of the parameters."""


@dataclass(frozen=True, slots=True)
class Context:
    """What an agent has seen so far, for engines that take ids, text or messages."""

    messages: tuple[Message, ...]
    """The prompt as turns."""
    spans: list[Span] = field(default_factory=list)
    """The prompt span, then what was sampled and injected. Read only for engines."""
    tools: Tools = ()
    """What it may call natively; only engines that have native calls look at it."""

    @property
    def token_ids(self) -> list[int]:
        """Exactly the ids the model has seen; ValueError if a span has none."""
        ids: list[int] = []
        for span in self.spans:
            if span.token_ids is None:
                raise ValueError(f"a {span.origin} span has no token ids")
            ids.extend(span.token_ids)
        return ids

    @property
    def text(self) -> str:
        return "".join(span.text for span in self.spans)

    @property
    def turns(self) -> list[Message]:
        """As a conversation: what was sampled is the assistant's, what was injected the user's."""
        turns = list(self.messages)
        for span in self.spans[1:]:
            role = "assistant" if span.origin is Origin.SAMPLED else "user"
            if turns and turns[-1].role == role:
                turns[-1] = Message(role, turns[-1].content + span.text)
            else:
                turns.append(Message(role, span.text))
        return turns


class Engine(Protocol):
    """Streams tokens. One engine serves any number of streams at once."""

    model: str
    """Name of the model, for the record."""
    native_calls: bool
    """Whether it tells the model of a context's tools itself, and says the model's calls as text. Else the prompt has
    to name the tools, and how they are called."""

    def prompt(self, messages: tuple[Message, ...]) -> Span:
        """The prompt span of these turns, as the model will see it."""
        ...

    def injection(self, text: str) -> tuple[str, tuple[int, ...] | None]:
        """Text to append to a context, as the model will see it, and its ids."""
        ...

    def turn(self, context: Context, text: str) -> tuple[str, tuple[int, ...] | None]:
        """The same for text that is the user's next turn, after a reply: with what ends the reply's turn, unless the
        model said that itself, and with what begins the next reply. Engines that know no turns put just the text."""
        ...

    def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        """Decode on from the context. Closing the generator aborts the request: when `aclose` has returned,
        no further token is sampled for it.

        Raises EngineError.
        """
        ...

    async def aclose(self) -> None:
        """Release what the engine holds; streams under way end with EngineError."""
        ...


class Updatable(Engine, Protocol):
    """An engine whose weights a trainer can change while it runs."""

    async def update_weights(self, weights: Mapping[str, Tensor], version: str) -> None:
        """Decode on with other weights, under Hugging Face names, from the next step on.

        Chunks name the version that sampled them; nothing that was computed with older weights is used any more:
        what streams under way have seen is read again. Raises ValueError if the weights do not fit.
        """
        ...
