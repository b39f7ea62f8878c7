"""Responses in the OpenAI format: server-sent events → chunks. No I/O."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from orgthink.engines.endpoint.tool_calls import Fragment, calls_text
from orgthink.engines.engine import Chunk, EngineError, FinishReason, StreamDropped
from orgthink.engines.stops import StopFinder
from orgthink.record.episode import Billed, Sampling, is_logprob
from orgthink.util.errors import RequestRefused
from orgthink.util.http import HttpResponse
from orgthink.util.terminal import excerpt

if TYPE_CHECKING:
    from orgthink.models.tokenizer import Tokenizer

LONGEST_TOKEN = 256
"""Characters; the longest tokens of today are lines of 128 spaces."""

_WORDS = re.compile(r"\s*\S+(?:\s+\Z)?|\s+")
"""Words with the space before them."""

_FINISH = {
    "stop": FinishReason.EOS,
    "eos": FinishReason.EOS,  # Together
    "eos_token": FinishReason.EOS,  # TGI
    "end_turn": FinishReason.EOS,  # Anthropic
    "tool_calls": FinishReason.EOS,
    "function_call": FinishReason.EOS,
    "stop_sequence": FinishReason.STOP,  # TGI, Anthropic
    "length": FinishReason.LENGTH,
    "model_length": FinishReason.LENGTH,  # Mistral
    "max_tokens": FinishReason.LENGTH,  # Anthropic
}

T = TypeVar("T")

_Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
_Many = Annotated[list[T], Field(fail_fast=True)]
"""A list that is not checked further after its first error."""


def _or_none(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    try:
        return check(value)
    except ValidationError:
        return None


_Optional = Annotated[T | None, WrapValidator(_or_none)]
"""`None` if a server sends another form: the answer is readable without it."""


class _Sent(BaseModel):
    """JSON of a server. Nothing is converted: a number is not a text. Other members are ignored."""

    model_config = ConfigDict(strict=True, frozen=True)


class _Details(_Sent):
    cached_tokens: _Optional[_Count] = None
    reasoning_tokens: _Optional[_Count] = None


class _Usage(_Sent):
    """Counts of tokens, in the places where servers put them."""

    prompt_tokens: _Optional[_Count] = None
    completion_tokens: _Optional[_Count] = None
    total_tokens: _Optional[_Count] = None
    prompt_tokens_details: _Optional[_Details] = None
    completion_tokens_details: _Optional[_Details] = None
    prompt_cache_hit_tokens: _Optional[_Count] = None  # DeepSeek


class _Function(_Sent):
    name: str | None = None
    arguments: Any = None


class _Call(_Sent):
    index: _Count | None = None
    id: str | None = None
    function: _Function = _Function()


class _Delta(_Sent):
    """The next part of a chat's reply."""

    content: Any = None
    refusal: _Optional[str] = None
    tool_calls: _Many[_Call] | None = None
    reasoning_content: Any = None
    reasoning: Any = None


class _Token(_Sent):
    token: str
    logprob: float | None = None


class _Logprobs(_Sent):
    """Tokens with their log-probabilities: `content` of a chat, the others of a completion."""

    content: _Many[_Token] | None = None
    tokens: _Many[str] = []
    token_logprobs: _Many[float | None] = []


class _Choice(_Sent):
    """A part of an answer: `delta` of a chat, or `text` of a completion."""

    delta: _Delta | None = None
    text: str | None = None
    logprobs: _Optional[_Logprobs] = None
    token_ids: _Many[_Count] | None = None
    finish_reason: str | None = None
    stop_reason: Any = None


class _Event(_Sent):
    error: Any = None
    usage: _Optional[_Usage] = None
    choices: _Many[_Choice] | None = None


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event of a streamed response."""

    pieces: tuple[str, ...] = ()
    """Its text: a piece for each token if the server names tokens, else one piece."""
    token_ids: tuple[int, ...] | None = None
    """Ids of its tokens; `None` where the server gives none."""
    logprobs: tuple[float, ...] | None = None
    """One for each piece, before temperature and top-p on most servers; `None` where unknown."""
    finish: FinishReason | None = None
    """Set on the last event with text."""
    tokens: int | None = None
    """Tokens of the whole response by the server's count, on the very last event."""
    billed: Billed | None = None
    """Tokens that the server bills, on the very last event."""
    calls: tuple[Fragment, ...] = ()
    """Its parts of native calls."""
    reasoning: str = ""
    """Reasoning that the server sends separately from the text."""
    reasoning_member: str = ""
    """Member of the message that holds the reasoning."""


def event(data: str) -> StreamEvent:
    """Check and read an event; EngineError if it is malformed or reports a failure."""
    try:
        sent = _parsed(data)
    except ValueError as error:
        raise EngineError(f"the server sent an invalid event: {excerpt(data, 80)}") from error
    if sent.error:
        failed = HttpResponse(_status(sent), data.encode("utf-8", "replace"))
        raise (StreamDropped if failed.busy else EngineError)(f"the server failed: {failed.complaint}")
    usage, bill = (sent.usage or _Usage()).completion_tokens, _billed(sent.usage)
    if not sent.choices:
        return StreamEvent(tokens=usage, billed=bill)
    choice, delta = sent.choices[0], sent.choices[0].delta or _Delta()
    text, reasoning, member = _content(delta)
    text = (choice.text or "") + text + (delta.refusal or "")
    tokens, logprobs = _logprobs(choice.logprobs)
    ids = choice.token_ids
    known = len(tokens) or len(ids or ())
    return StreamEvent(
        _cut(text, tokens, known) or ("",) * len(reasoning.split()),
        tuple(ids) if ids is not None and len(ids) == known else None,
        logprobs if tokens else None,
        _finish_reason(choice),
        usage,
        bill,
        tuple(_fragment(call) for call in delta.tool_calls or ()),
        reasoning,
        member,
    )


def failure(data: str) -> HttpResponse | None:
    """A failure that the first event reports, as the response that it should have been; `None` without a status. Some
    servers answer 200 before they have begun."""
    try:
        status = _status(_parsed(data))
    except ValueError:
        return None
    return HttpResponse(status, data.encode("utf-8", "replace")) if status else None


def models(body: str) -> dict[str, int | None]:
    """Models of a server and, if given, their context lengths in tokens; empty if the body is not a list of models."""
    try:
        listed = [(str(model["id"]), model.get("max_model_len")) for model in json.loads(body)["data"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    return {name: length if type(length) is int and length > 0 else None for name, length in listed}


def prompt_tokens(body: str) -> int | None:
    """Tokens of the prompt in a response without streaming; `None` if unknown."""
    try:
        return (_parsed(body).usage or _Usage()).prompt_tokens
    except ValueError:
        return None


def choice(body: str) -> dict[str, Any]:
    """The choice in a response without streaming; empty without one."""
    try:
        found = json.loads(body)["choices"][0]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _parsed(text: str) -> _Event:
    """ValueError for anything else. Some servers cut a character in two: half a surrogate pair becomes `?`."""
    try:
        return _Event.model_validate_json(text)
    except ValidationError:
        if "\\ud" not in text.lower():
            raise
    try:
        whole = json.dumps(json.loads(text), ensure_ascii=False)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    return _Event.model_validate_json(whole.encode("utf-8", "replace"))


def _status(sent: _Event) -> int:
    """Status of the failure that an event reports; 0 without one. LiteLLM sends it as a text."""
    code = str(sent.error.get("code")) if isinstance(sent.error, dict) else ""
    return int(code) if re.fullmatch(r"[45]\d\d", code, re.ASCII) else 0


def _content(delta: _Delta) -> tuple[str, str, str]:
    """Text, reasoning, and the member that holds the reasoning. Mistral sends both as parts of the content."""
    content = delta.content
    text, within = (content, "") if isinstance(content, str) else (_texts(content), "")
    for part in content if isinstance(content, list) else ():
        within += _texts(part.get("thinking")) if isinstance(part, dict) else ""
    for member in ("reasoning_content", "reasoning"):
        if isinstance(found := getattr(delta, member), str) and found:
            return text, found, member
    return text, within, ""


def _texts(parts: Any) -> str:
    """The text parts of a content."""
    parts = [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    texts = [part.get("text") for part in parts if part.get("type") == "text"]
    return "".join(text for text in texts if isinstance(text, str))


def _fragment(call: _Call) -> Fragment:
    given = call.function.arguments or ""
    arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return Fragment(call.index, call.id or None, call.function.name or "", arguments)


def _finish_reason(choice: _Choice) -> FinishReason | None:
    """Why the answer ends here; `None` if it continues. StreamDropped if the same request may be answered in full,
    RequestRefused if the server will not continue, as with content_filter."""
    word = choice.finish_reason
    if not word:
        return None
    if word == "stop" and isinstance(choice.stop_reason, str):  # of vLLM: a stop text, or the id of a token
        return FinishReason.STOP
    if word in _FINISH:
        return _FINISH[word]
    given_up = word in ("abort", "error") or word.startswith("insufficient_")  # vLLM, Mistral; DeepSeek
    raise (StreamDropped if given_up else RequestRefused)(f"the server ended the answer: {excerpt(word)}")


def _billed(usage: _Usage | None) -> Billed | None:
    """The counts of a request; `None` without any."""
    if usage is None or (usage.prompt_tokens is None and usage.completion_tokens is None):
        return None
    prompt, output, details = usage.prompt_tokens, usage.completion_tokens, usage.prompt_tokens_details or _Details()
    if prompt is not None and output is not None and usage.total_tokens is not None:
        output = max(output, usage.total_tokens - prompt)  # xAI and Gemini count reasoning in the total only
    cached = usage.prompt_cache_hit_tokens if details.cached_tokens is None else details.cached_tokens
    return Billed(prompt, cached, output, (usage.completion_tokens_details or _Details()).reasoning_tokens)


def _cut(text: str, tokens: list[str], known: int) -> tuple[str, ...]:
    """The text of each token. If the texts of the tokens are unknown, or do not add up to it (part of a character), the
    last token gets all of it."""
    if known == 0:
        return (text,) if text else ()
    return tuple(tokens) if tokens and "".join(tokens) == text else ("",) * (known - 1) + (text,)


def _logprobs(sent: _Logprobs | None) -> tuple[list[str], tuple[float, ...] | None]:
    """Texts and log-probabilities of the tokens of a chat or completion; `None` if a log-probability is invalid."""
    if sent is None:
        return [], None
    if sent.content is not None:
        tokens, found = [entry.token for entry in sent.content], [entry.logprob for entry in sent.content]
    else:
        tokens, found = sent.tokens, sent.token_logprobs
    logprobs = tuple(p for p in found if p is not None and is_logprob(p))
    return tokens, logprobs if len(logprobs) == len(tokens) == len(found) else None


class Reader:
    """Turns the events of one response into chunks, up to the token that completes a stop text.

    A word is a piece where the server does not name tokens. Native calls become text when the response ends.
    """

    def __init__(self, sampling: Sampling, tokenizer: Tokenizer | None) -> None:
        """`tokenizer` in `tokens` mode, where it decodes the ids."""
        self.read = 0
        """Pieces so far."""
        self._left, self._most, self._characters = sampling.max_tokens, sampling.max_tokens, 0
        self._pieces = tokenizer.pieces() if tokenizer else None
        self._stops = StopFinder(sampling.stop)
        self._calls: list[Fragment] = []
        self._last_text = "\n"
        # Servers give log-probabilities before temperature and top-p; they are exact only with these settings.
        self._trusted = sampling.temperature in (0.0, 1.0) and sampling.top_p == 1.0

    def chunk(self, event: StreamEvent) -> Chunk:
        self._characters += sum(map(len, event.pieces)) + len(event.reasoning)
        self._characters += sum(len(part.name + part.arguments) for part in event.calls)
        if self._characters > LONGEST_TOKEN * (self._most + 1):
            raise EngineError(f"the server sent {self._characters} characters for {self._most} tokens")
        event = self._with_calls(event) if event.calls or self._calls else event
        pieces, ids, finish = event.pieces, event.token_ids, event.finish
        named = ids is not None or event.logprobs is not None
        if self._pieces is not None:
            if ids is None:
                raise EngineError("the server stopped sending token ids")
            ids = ids[: self._left + 1]  # one too many shows that there are more
            pieces = tuple(map(self._pieces.piece, ids))
            if pieces and finish is FinishReason.EOS:
                pieces = (*pieces[:-1], "")  # sampled, but no text
        elif not named and not self._calls:
            pieces = tuple(word for piece in pieces for word in _WORDS.findall(piece) or [""])
        for i, piece in enumerate(pieces):
            end = self._stops.feed(piece)
            if end is not None:
                pieces, finish = (*pieces[:i], piece if named else piece[:end]), FinishReason.STOP
                break
        if named:
            if len(pieces) > self._left:  # the server exceeds the limit
                pieces, finish = pieces[: self._left], FinishReason.LENGTH
            self._left -= len(pieces)
        n = len(pieces)
        self.read += n
        self._last_text = "".join(pieces) or self._last_text
        logprobs = event.logprobs if self._trusted else None
        return Chunk(pieces, ids and ids[:n], logprobs and logprobs[:n], finish, reasoning=event.reasoning)

    def _with_calls(self, event: StreamEvent) -> StreamEvent:
        """The last event with the text of all calls. Until then a fragment of a call is an empty piece."""
        pieces = event.pieces or ("",) * bool(event.calls and self._calls)
        self._calls += event.calls
        if event.finish is None:
            return replace(event, pieces=pieces)
        within_line = not ("".join(pieces) or self._last_text).endswith("\n")
        text = "\n" * within_line + calls_text(self._calls)
        return replace(event, pieces=(*pieces, text), token_ids=None, logprobs=None)
