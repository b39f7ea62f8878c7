"""OpenAI's Responses interface: what of a request is honoured, and the forms of its response.

A client sends the whole conversation. Only a response in the background can be fetched later.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import ValidatorFunctionWrapHandler, WrapValidator, field_validator

from orgthink.record.episode import Episode, Message
from orgthink.serve.exchange import encoded, facts, finish_reason, response_usage
from orgthink.serve.question import (
    EXTENSIONS,
    ChatMessage,
    Conversation,
    Question,
    RequestError,
    Tokens,
    parse,
    quoted,
)

_UNSUPPORTED = {
    "previous_response_id": (),
    "conversation": (),
    "include": ([],),
    "prompt": (),
    "reasoning.effort": (),
    "text.format": ({"type": "text"},),
    "text.verbosity": ("medium",),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "top_logprobs": (0,),
    "truncation": ("disabled",),
    **EXTENSIONS,
}
"""Members that an organization cannot honour, and the values of each that want nothing."""

CANCELLED = "cancelled"
"""Status of a response that a client ended, and code of that error."""
NOTES = 16
"""Most notes of a client."""

Json = dict[str, Any]


def _turn(item: Any, read: ValidatorFunctionWrapHandler) -> ChatMessage | None:
    """The turn that an item is; `None` for earlier reasoning, which is no part of what was answered. It keeps its
    place, so that an error names the item that the client sent."""
    if not isinstance(item, dict):
        raise ValueError("an item must be an object")
    kind = item.get("type") or "message"
    if kind not in ("message", "reasoning"):
        raise ValueError(f"items of the type {quoted(kind)} are not supported by an organization")
    return None if kind == "reasoning" else read(item)


_Item = Annotated[ChatMessage | None, WrapValidator(_turn)]


class ResponseRequest(Question):
    """The members that are honoured."""

    input: Conversation[_Item]
    instructions: str | None = None
    """What a message of the system would say, before the conversation."""
    max_output_tokens: Tokens | None = None
    """Tokens that all agents together may sample."""
    metadata: dict[str, str] | None = None
    """The client's own notes, which come back as they are."""
    background: bool | None = None
    """Whether it goes on without the client, who fetches it later."""
    store: bool | None = None
    """The same as `background`, if it is given."""

    @field_validator("input", mode="before")
    @classmethod
    def _turns(cls, value: Any) -> Any:
        """A text is the user's turn."""
        return [{"role": "user", "content": value}] if isinstance(value, str) else value

    @field_validator("metadata", mode="before")
    @classmethod
    def _few(cls, value: Any) -> Any:
        """Counted before they are read: a list of all that is wrong with many takes much memory."""
        if isinstance(value, dict) and len(value) > NOTES:
            raise ValueError(f"at most {NOTES} notes")
        return value

    @property
    def conversation(self) -> tuple[Message, ...]:
        first = () if self.instructions is None else (Message("system", self.instructions),)
        return (*first, *(turn.message for turn in self.input if turn is not None))

    @property
    def max_episode_tokens(self) -> int | None:
        return self.max_output_tokens


def read(body: bytes) -> ResponseExchange:
    """A request; RequestError in one line."""
    request = parse(body, _UNSUPPORTED, ResponseRequest, "input")
    if request.store not in (None, bool(request.background)):
        raise RequestError("store: responses in the background are stored, and no others", param="store")
    return ResponseExchange(request)


class ResponseExchange:
    """A request for a response, and its forms: a reasoning item with what the agents said, then the answer."""

    def __init__(self, request: ResponseRequest) -> None:
        self.question, self._created = request, int(time.time())
        self.id, self._reasoning_id, self._message_id = (f"{p}_{secrets.token_hex(24)}" for p in ("resp", "rs", "msg"))
        self._number = 0
        """Of the next event."""
        self._lanes: list[str] = []
        """What the agents said so far."""

    def whole(self, episode: Episode, lanes: str) -> Json:
        return self._response(_status(episode), self._output(episode, lanes)) | _end(episode)

    def begins(self) -> Iterator[bytes]:
        for kind in ("created", "in_progress"):
            yield self._event(f"response.{kind}", response=self._response("in_progress", []))

    def says(self, text: str) -> Iterator[bytes]:
        place = {"item_id": self._reasoning_id, "output_index": 0, "summary_index": 0}
        if not self._lanes:
            yield self._event("response.output_item.added", output_index=0, item=self._reasoning("", "in_progress"))
            yield self._event("response.reasoning_summary_part.added", **place, part=_summary(""))
        self._lanes.append(text)
        yield self._event("response.reasoning_summary_text.delta", **place, delta=text)

    def ends(self, episode: Episode) -> Iterator[bytes]:
        yield from self._reasoned("completed")
        output = self._output(episode, "".join(self._lanes))
        answer, index = output[-1], len(output) - 1
        (part,) = answer["content"]
        place = {"item_id": self._message_id, "output_index": index, "content_index": 0}
        begun = answer | {"status": "in_progress", "content": []}
        yield self._event("response.output_item.added", output_index=index, item=begun)
        yield self._event("response.content_part.added", **place, part=part | {"text": ""})
        yield self._event("response.output_text.delta", **place, delta=part["text"], logprobs=[])
        yield self._event("response.output_text.done", **place, text=part["text"], logprobs=[])
        yield self._event("response.content_part.done", **place, part=part)
        yield self._event("response.output_item.done", output_index=index, item=answer)
        status = _status(episode)
        yield self._event(f"response.{status}", response=self._response(status, output) | _end(episode))

    def fails(self, error: RequestError) -> Iterator[bytes]:
        yield from self._reasoned("incomplete")
        output = [self._reasoning("".join(self._lanes), "incomplete")] if self._lanes else []
        code = "server_error" if error.status >= 500 else "invalid_prompt"
        kind, response = "failed", self._response("failed", output) | {"error": {"code": code, "message": str(error)}}
        if error.code == CANCELLED:  # there is no event of this kind: its response tells it
            kind, response = "incomplete", self._response(CANCELLED, output)
        yield self._event(f"response.{kind}", response=response)

    def _reasoned(self, status: str) -> Iterator[bytes]:
        """The end of the reasoning, if there was any."""
        if self._lanes:
            text, place = "".join(self._lanes), {"item_id": self._reasoning_id, "output_index": 0, "summary_index": 0}
            yield self._event("response.reasoning_summary_text.done", **place, text=text)
            yield self._event("response.reasoning_summary_part.done", **place, part=_summary(text))
            yield self._event("response.output_item.done", output_index=0, item=self._reasoning(text, status))

    def _output(self, episode: Episode, lanes: str) -> list[Json]:
        """The items of a response that has ended."""
        text = {"type": "output_text", "text": episode.answer or "", "annotations": [], "logprobs": []}
        message = {"id": self._message_id, "type": "message", "role": "assistant", "status": _status(episode)}
        return [*([self._reasoning(lanes, "completed")] if lanes else []), message | {"content": [text]}]

    def _reasoning(self, text: str, status: str) -> Json:
        summary = [_summary(text)] if text else []
        return {"id": self._reasoning_id, "type": "reasoning", "status": status, "summary": summary}

    def _event(self, kind: str, **members: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        return numbered(kind, number, **members)

    def _response(self, status: str, output: list[Json]) -> Json:
        request = self.question
        return {
            "id": self.id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "background": bool(request.background),
            "error": None,
            "incomplete_details": None,
            "instructions": request.instructions,
            "max_output_tokens": request.max_output_tokens,
            "metadata": request.metadata or {},
            "model": request.model,
            "output": output,
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "store": bool(request.background),
            "temperature": request.temperature,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": request.top_p,
            "truncation": "disabled",
            "usage": None,
        }


def numbered(kind: str, number: int, **members: Any) -> bytes:
    """A server-sent event of this interface."""
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), encoded({"type": kind, "sequence_number": number, **members}))


def _status(episode: Episode) -> str:
    return "incomplete" if finish_reason(episode) == "length" else "completed"


def _end(episode: Episode) -> Json:
    """What is known when a response has ended."""
    cut = {"incomplete_details": {"reason": "max_output_tokens"}} if _status(episode) == "incomplete" else {}
    return cut | {"usage": response_usage(episode), "orgthink": facts(episode)}


def _summary(text: str) -> Json:
    return {"type": "summary_text", "text": text}
