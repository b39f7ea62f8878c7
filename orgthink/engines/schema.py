"""What a server may send: the types that its JSON is checked against, once. Other members of an object are ignored."""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

MOST = 2**31 - 1
"""Largest count and largest token id."""

Count = Annotated[int, Field(ge=0, le=MOST)]

T = TypeVar("T")

Many = Annotated[list[T], Field(fail_fast=True)]
"""A list of which the first wrong item is an error, and no other: a list of all takes long, and much memory."""


def _wished(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    try:
        return check(value)
    except ValidationError:
        return None


Wished = Annotated[T | None, WrapValidator(_wished)]
"""What an answer is as good without: `None` if it has another form."""

MOST_CHOICES, MOST_CALLS, MOST_PARTS = 128, 1_000, 100
"""Choices, of which the first is read, parts of calls and parts of a content in an event: to make an object of each
part takes long."""


class Sent(BaseModel):
    """JSON of a server. Nothing is converted: a number is no text."""

    model_config = ConfigDict(strict=True, frozen=True)


class SentUsage(Sent):
    """Counts of tokens. What only a bill needs may be anything: see `orgthink.engines.bill`."""

    prompt_tokens: Wished[Count] = None
    completion_tokens: Wished[Count] = None
    total_tokens: Any = None
    prompt_tokens_details: Any = None
    completion_tokens_details: Any = None
    prompt_cache_hit_tokens: Any = None
    reasoning_tokens: Any = None


class SentFunction(Sent):
    """What is called, or a part of it. Some servers send the arguments as an object."""

    name: str | None = None
    arguments: Any = None


class SentCall(Sent):
    """A part of a native call."""

    index: Count | None = None
    id: str | None = None
    function: SentFunction | None = None


class SentPart(Sent):
    """A part of a content. Thoughts have parts of their own."""

    type: str | None = None
    text: str | None = None
    thinking: Any = None


class SentDelta(Sent):
    """The next part of a chat's reply. Its content is a text, or a list of parts."""

    content: str | Annotated[Many[SentPart], Field(max_length=MOST_PARTS)] | None = None
    refusal: Wished[str] = None
    tool_calls: Annotated[Many[SentCall], Field(max_length=MOST_CALLS)] | None = None
    reasoning_content: Any = None
    reasoning: Any = None


class SentToken(Sent):
    """A token of a chat."""

    token: str
    logprob: float | None = None


class SentLogprobs(Sent):
    """Tokens with their log-probabilities: `content` of a chat, the others of a completion."""

    content: Many[SentToken] | None = None
    tokens: Many[str] = []
    token_logprobs: Many[float | None] = []

    @model_validator(mode="after")
    def _require_pairs(self) -> SentLogprobs:
        if len(self.tokens) != len(self.token_logprobs):
            raise ValueError(f"{len(self.tokens)} tokens with {len(self.token_logprobs)} log-probabilities")
        return self


class SentChoice(Sent):
    """A part of an answer: `delta` of a chat, or `text` of a completion. Azure's filters send some without either."""

    delta: SentDelta | None = None
    text: str | None = None
    logprobs: Wished[SentLogprobs] = None
    token_ids: Many[Count] | None = None
    finish_reason: str | None = None
    stop_reason: Any = None


class SentEvent(Sent):
    """An event of a streamed response."""

    error: Any = None
    usage: Wished[SentUsage] = None
    choices: Annotated[Many[SentChoice], Field(max_length=MOST_CHOICES)] | None = None


class SentReply(Sent):
    """A response without streaming, of which only the counts are read."""

    usage: Wished[SentUsage] = None


class SentRefusal(Sent):
    """A response with a status other than 200, of which only the code of the error is read."""

    error: Any = None
    code: Any = None


class SentModel(Sent):
    """A model of a server."""

    id: Annotated[str, Field(min_length=1, max_length=512)]
    max_model_len: Any = None


class SentModels(Sent):
    """The models of a server."""

    data: Many[SentModel]


S = TypeVar("S", bound=Sent)


def parsed(cls: type[S], text: str) -> S:
    """The JSON of a server. Half a surrogate pair, which UTF-8 cannot hold, becomes `?`. ValueError for anything else.

    Some servers cut a character in two, and send its halves in two events.
    """
    try:
        return cls.model_validate_json(text)
    except ValidationError as error:
        if error.errors(include_url=False)[0]["type"] != "json_invalid" or "\\ud" not in text.lower():
            raise
    try:
        whole = json.dumps(json.loads(text), ensure_ascii=False)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    return cls.model_validate_json(whole.encode("utf-8", "replace"))
