"""OpenAI's chat interface: what of a request is honoured, and the forms of its response."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field, field_validator

from orgthink.record.episode import Episode
from orgthink.serve.exchange import event, facts, finish_reason, usage
from orgthink.serve.question import (
    EXTENSIONS,
    ChatMessage,
    Conversation,
    Many,
    Question,
    RequestError,
    Tokens,
    parse,
    require_question,
)

_UNSUPPORTED = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "reasoning_effort": (),
    "verbosity": ("medium",),
    "web_search_options": (),
    "prediction": (),
    "store": (False,),
    **EXTENSIONS,
}
"""Members that an organization cannot honour, and the values of each that want nothing."""

MOST_STOPS = 64
"""Most stop texts: an answer is searched for each of them."""


class StreamOptions(BaseModel):
    include_usage: bool = False


class ChatRequest(BaseModel):
    """The members that are honoured."""

    model: Annotated[str, Field(max_length=1000)]
    messages: Conversation[ChatMessage]
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: Tokens | None = None
    """Tokens that all agents together may sample."""
    max_completion_tokens: Tokens | None = None
    """The newer name of `max_tokens`."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: Annotated[Many[Annotated[str, Field(min_length=1)]], Field(max_length=MOST_STOPS)] | None = None
    """The answer ends before the first of these."""

    @field_validator("stop", mode="before")
    @classmethod
    def _one_or_more(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @property
    def question(self) -> Question:
        given = [limit for limit in (self.max_tokens, self.max_completion_tokens) if limit is not None]
        return Question(
            model=self.model,
            messages=tuple(turn.message for turn in self.messages),
            max_episode_tokens=min(given, default=None),
            temperature=self.temperature,
            top_p=self.top_p,
            seed=self.seed,
        )


def read(body: bytes) -> ChatExchange:
    """A request; RequestError in one line."""
    request = parse(body, _UNSUPPORTED, ChatRequest)
    require_question(request.question.messages, "messages")
    return ChatExchange(request)


class ChatExchange:
    """A chat request, and the forms of its response."""

    def __init__(self, request: ChatRequest) -> None:
        self.question, self.streams = request.question, request.stream
        self._stops = request.stop or []
        self._counts = request.stream_options is not None and request.stream_options.include_usage
        """Whether the client wants the usage of a stream."""
        self._created, self._id = int(time.time()), f"chatcmpl-{secrets.token_hex(12)}"

    def whole(self, episode: Episode, lanes: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": cut(episode.answer or "", self._stops)}
        choice = {"index": 0, "message": message, "finish_reason": finish_reason(episode), "logprobs": None}
        return self._head("chat.completion") | {
            "choices": [choice],
            "usage": usage(episode),
            "orgthink": facts(episode),
        }

    def begins(self) -> Iterator[bytes]:
        yield self._chunk({"role": "assistant", "content": ""})

    def says(self, text: str) -> Iterator[bytes]:
        """Reasoning, under both names that clients know."""
        yield self._chunk({"reasoning_content": text, "reasoning": text})

    def ends(self, episode: Episode) -> Iterator[bytes]:
        yield self._chunk({"content": cut(episode.answer or "", self._stops)})
        yield self._chunk({}, finish_reason(episode), orgthink=facts(episode))
        if self._counts:
            yield event(self._head("chat.completion.chunk") | {"choices": [], "usage": usage(episode)})
        yield b"data: [DONE]\n\n"

    def fails(self, error: RequestError) -> Iterator[bytes]:
        yield event(error.body)

    def _chunk(self, delta: Mapping[str, Any], finish: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return event(self._head("chat.completion.chunk") | {"choices": [choice]} | more)

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self.question.model}


def cut(answer: str, stops: list[str]) -> str:
    """The answer up to the first stop text."""
    ends = [at for stop in stops if (at := answer.find(stop)) >= 0]
    return answer[: min(ends, default=len(answer))]
