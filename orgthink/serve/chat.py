"""OpenAI's chat interface: what of a request is honoured, and the forms of its response."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field, field_validator

from orgthink.record.episode import Episode, Message
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


class ChatRequest(Question):
    """The members that are honoured."""

    messages: Conversation[ChatMessage]
    stream_options: StreamOptions | None = None
    max_tokens: Tokens | None = None
    """Tokens that all agents together may sample."""
    max_completion_tokens: Tokens | None = None
    """The newer name of `max_tokens`."""
    stop: Annotated[Many[Annotated[str, Field(min_length=1)]], Field(max_length=MOST_STOPS)] | None = None
    """The answer ends before the first of these."""

    @field_validator("stop", mode="before")
    @classmethod
    def _one_or_more(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @property
    def conversation(self) -> tuple[Message, ...]:
        return tuple(turn.message for turn in self.messages)

    @property
    def max_episode_tokens(self) -> int | None:
        given = [limit for limit in (self.max_tokens, self.max_completion_tokens) if limit is not None]
        return min(given, default=None)


def read(body: bytes) -> ChatExchange:
    """A request; RequestError in one line."""
    return ChatExchange(parse(body, _UNSUPPORTED, ChatRequest, "messages"))


class ChatExchange:
    """A chat request, and the forms of its response."""

    def __init__(self, request: ChatRequest) -> None:
        self.question = request
        self._stops = request.stop or []
        self._counts = request.stream_options is not None and request.stream_options.include_usage
        """Whether the client wants the usage of a stream."""
        self._created, self.id = int(time.time()), f"chatcmpl-{secrets.token_hex(12)}"

    def whole(self, episode: Episode, lanes: str) -> dict[str, Any]:
        reasoning = {"reasoning_content": lanes, "reasoning": lanes}  # both names that clients know
        message = {"role": "assistant", "content": cut(episode.answer or "", self._stops)} | reasoning
        return self._head("chat.completion") | {
            "choices": [{"index": 0, "message": message, "finish_reason": finish_reason(episode), "logprobs": None}],
            "usage": usage(episode),
            "orgthink": facts(episode),
        }

    def begins(self) -> Iterator[bytes]:
        yield self._chunk({"role": "assistant", "content": ""})

    def says(self, text: str) -> Iterator[bytes]:
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
        return {"id": self.id, "object": kind, "created": self._created, "model": self.question.model}


def cut(answer: str, stops: list[str]) -> str:
    """The answer up to the first stop text."""
    ends = [at for stop in stops if (at := answer.find(stop)) >= 0]
    return answer[: min(ends, default=len(answer))]
