"""The request of a client in both interfaces, and its checks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, field_validator, model_validator
from pydantic_core import from_json

from orgthink.record.episode import Message, Problem
from orgthink.util.terminal import excerpt

TASK = "served"
"""Task of a client's problem, which has no grader."""

PLACE = 100
"""Most characters of a path or a client's word in an error message."""

BEGINNING = 120
"""Characters of a question by which an episode is listed."""

MOST_PARTS = 10_000
"""Parts of all messages together."""

NO_TOOLS = "messages with tool calls or their results are not supported by an organization"
"""Error for a conversation with tool calls."""

EXTENSIONS: Mapping[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "top_k": (-1, 0),
    "min_p": (0,),
    "repetition_penalty": (1,),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "structured_outputs": (),
}
"""Members that vLLM and other servers add to OpenAI's interfaces. An organization does not support them; the values
of each that have no effect."""

T = TypeVar("T", bound="Question")
Item = TypeVar("Item")

Many = Annotated[list[Item], Field(fail_fast=True)]
"""A list whose check stops at the first wrong item."""

Tokens = Annotated[int, Field(ge=1, lt=2**63)]
"""Most tokens."""


class RequestError(Exception):
    """A refused request, with OpenAI's error body."""

    def __init__(
        self,
        message: str,
        status: int = 400,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param
        self.headers = headers or {}

    @property
    def body(self) -> dict[str, Any]:
        """The body of the response."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = "rate_limit_error" if self.status == 429 else kind
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


def quoted(word: Any) -> str:
    """The beginning of a client's own word, for a message."""
    return repr(excerpt(str(word)[: 10 * PLACE], PLACE))


class _TextPart(BaseModel):
    type: Literal["text", "input_text", "output_text"]
    text: str

    @model_validator(mode="before")
    @classmethod
    def _only_text(cls, value: Any) -> Any:
        kind = value.get("type") if isinstance(value, dict) else None
        if kind is not None and kind not in ("text", "input_text", "output_text"):
            raise ValueError(f"parts of the type {quoted(kind)} are not supported: text only")
        return value


class ChatMessage(BaseModel):
    """A turn of the conversation, in the forms of either interface."""

    role: Literal["system", "developer", "user", "assistant"]
    tool_calls: Any = None
    """Nothing: an organization calls no tools of clients. Before the content, which is null if there are tool calls."""
    function_call: Any = None
    """The older form of `tool_calls`."""
    content: Many[_TextPart]
    """A text is its only part."""

    @field_validator("role", mode="before")
    @classmethod
    def _no_tool(cls, value: Any) -> Any:
        if value in ("tool", "function"):
            raise ValueError(NO_TOOLS)
        return value

    @field_validator("tool_calls", "function_call")
    @classmethod
    def _no_calls(cls, value: Any) -> Any:
        if value:
            raise ValueError(NO_TOOLS)
        return value

    @field_validator("content", mode="before")
    @classmethod
    def _parts(cls, value: Any) -> Any:
        if isinstance(value, str):
            return [{"type": "text", "text": value}]
        if not isinstance(value, list):
            raise ValueError("it must be a text, or a list of parts with the type 'text'")
        return value

    @property
    def message(self) -> Message:
        return Message("system" if self.role == "developer" else self.role, "".join(part.text for part in self.content))


def _few_parts(turns: Any) -> Any:
    """Turns as they were; ValueError for too many parts, which are counted before they are read."""
    contents = [turn.get("content") for turn in turns if isinstance(turn, dict)] if isinstance(turns, list) else []
    if sum(len(content) for content in contents if isinstance(content, list)) > MOST_PARTS:
        raise ValueError(f"the messages have more than {MOST_PARTS:,} parts")
    return turns


Conversation = Annotated[Many[Item], Field(min_length=1, max_length=10_000), BeforeValidator(_few_parts)]
"""A list of messages."""


class Question(BaseModel):
    """A conversation that waits for its answer: what the requests of both interfaces have."""

    model: Annotated[str, Field(max_length=1000)]
    """Name of the model that is to answer."""
    stream: bool = False
    """Whether the client wants events."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """Of sampling; `None`: the server's."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    """Of sampling; `None`: the server's."""
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    """Of the whole tree; `None`: a random one."""

    @property
    def conversation(self) -> tuple[Message, ...]:
        """The turns so far. The last one is the user's."""
        raise NotImplementedError

    @property
    def max_episode_tokens(self) -> int | None:
        """Tokens that all agents together may sample; `None`: as many as the server allows."""
        raise NotImplementedError

    @cached_property
    def problem(self) -> Problem:
        """The last message is the question; the messages before it are its history.

        The same conversation is the same problem, so that a seed draws the same answer.
        """
        *history, last = messages = list(self.conversation)
        digest = sha256(repr(messages).encode(errors="replace")).hexdigest()[:32]
        return Problem(f"{TASK}-{digest}", TASK, last.content, history=tuple(history))

    @cached_property
    def beginning(self) -> str:
        """The beginning of the question, for a list. To redact a long one takes long."""
        return excerpt(self.problem.text, BEGINNING)


def parse(body: bytes, unsupported: Mapping[str, tuple[Any, ...]], model: type[T], turns: str) -> T:
    """The request in a body; RequestError in one line, also unless the last of its `turns` is the user's.

    `unsupported` are members that are not supported, by their paths, and the values of each that have no
    effect. Unknown members are ignored: OpenAI often adds new ones.
    """
    try:
        raw = from_json(body, allow_inf_nan=False)  # unlike json.loads, it refuses half surrogates
    except ValueError:
        raise RequestError("the body is not JSON", code="invalid_json") from None
    if not isinstance(raw, dict):
        raise RequestError("the body is not a JSON object", code="invalid_json")
    wanted = {path: _member(raw, path) for path in unsupported}
    refused = [path for path, value in wanted.items() if value is not None and value not in unsupported[path]]
    if refused:
        verb = "is" if len(refused) == 1 else "are"
        text = f"{', '.join(refused)} {verb} not supported by an organization"
        raise RequestError(text, code="unsupported", param=refused[0])
    try:
        found = model.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = excerpt(".".join(str(part) for part in first["loc"]), PLACE)
        raise RequestError(f"{place}: {first['msg'].removeprefix('Value error, ')}", param=place) from None
    messages = found.conversation
    if not messages or messages[-1].role != "user" or not messages[-1].content.strip():
        raise RequestError("the last message must be the user's, with a text", param=turns)
    _ = found.problem, found.beginning  # made here, in a thread
    return found


def _member(raw: Any, path: str) -> Any:
    """The value at a path such as `reasoning.effort`; `None` without one."""
    for name in path.split("."):
        raw = raw.get(name) if isinstance(raw, dict) else None
    return raw
