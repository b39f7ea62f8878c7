"""A chat request, as clients of OpenAI send it: what is honoured, and what is refused in one line."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError, field_validator
from pydantic_core import from_json

from orgthink.episode import Message, Problem

TASK = "served"
"""Task of a problem that came from a client: nobody can grade it."""

_UNSUPPORTED = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
}
"""Members that an organization cannot honour, and the values of each that ask for nothing."""


class RequestError(Exception):
    """A request that is not served, as OpenAI would say it."""

    def __init__(self, message: str, status: int = 400, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param
        self.headers: Mapping[str, str] = {}

    @property
    def body(self) -> dict[str, Any]:
        """The body of the response."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = "rate_limit_error" if self.status == 429 else kind
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


class _TextPart(BaseModel):
    type: Literal["text"]
    text: str


class ChatMessage(BaseModel):
    """A turn of the conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[_TextPart]

    @property
    def message(self) -> Message:
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return Message("system" if self.role == "developer" else self.role, text)


class StreamOptions(BaseModel):
    include_usage: bool = False


class ChatRequest(BaseModel):
    """The members that are honoured. Others are ignored, as OpenAI adds new ones often."""

    model: Annotated[str, Field(max_length=1000)]
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=10_000)]
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Tokens that all agents together may sample."""
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    """The newer name of `max_tokens`."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: list[Annotated[str, Field(min_length=1)]] | None = None
    """The answer ends before the first of these."""

    @field_validator("stop", mode="before")
    @classmethod
    def _one_or_more(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @property
    def tokens(self) -> int | None:
        """Tokens that all agents together may sample."""
        given = [limit for limit in (self.max_tokens, self.max_completion_tokens) if limit is not None]
        return min(given, default=None)

    @property
    def problem(self) -> Problem:
        """The last message is the question; what was said before is told to whoever is told the question.

        The same conversation is the same problem, so that a seed draws the same answer.
        """
        *history, last = messages = [message.message for message in self.messages]
        digest = sha256(repr(messages).encode(errors="replace")).hexdigest()[:32]
        return Problem(f"{TASK}-{digest}", TASK, last.content, history=tuple(history))


def read(body: bytes) -> ChatRequest:
    """A request; RequestError in one line."""
    try:
        raw = from_json(body, allow_inf_nan=False)  # which, unlike json.loads, takes no half surrogates
    except ValueError:
        raise RequestError("the body is not JSON", code="invalid_json") from None
    if not isinstance(raw, dict):
        raise RequestError("the body is not a JSON object", code="invalid_json")
    for name, harmless in _UNSUPPORTED.items():
        if raw.get(name) is not None and raw[name] not in harmless:
            raise RequestError(f"{name} is not supported by an organization", code="unsupported", param=name)
    try:
        request = ChatRequest.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise RequestError(f"{place}: {first['msg']}", param=place) from None
    last = request.messages[-1]
    if last.role != "user" or not last.message.content.strip():
        raise RequestError("the last message must be the user's, with a text", param="messages")
    return request


def cut(answer: str, stops: list[str] | None) -> str:
    """The answer up to the first stop text."""
    ends = [at for stop in stops or () if (at := answer.find(stop)) >= 0]
    return answer[: min(ends, default=len(answer))]
