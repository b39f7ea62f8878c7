"""The OpenAI wire format: contexts and settings → requests, server-sent events → chunks. No I/O."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Container
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from orgthink.engines import content, native_calls, refusals
from orgthink.engines.bill import billed
from orgthink.engines.endings import finish_reason
from orgthink.engines.engine import Chunk, Context, EngineError, FinishReason, StreamDropped
from orgthink.engines.fewest import BYTES, Fewest
from orgthink.engines.schema import (
    MOST,
    SentDelta,
    SentEvent,
    SentLogprobs,
    SentModels,
    SentReply,
    SentUsage,
    parsed,
)
from orgthink.engines.stops import StopFinder
from orgthink.record.episode import Billed, Sampling, is_logprob
from orgthink.util.http_response import HttpResponse, complaint
from orgthink.util.terminal import excerpt

if TYPE_CHECKING:
    from orgthink.models.tokenizer import Tokenizer

log = logging.getLogger(__name__)

MOST_STOPS = 4
"""Most stop texts in a request, by the limits of OpenAI and vLLM. At others the client closes the connection."""


LONGEST_TOKEN = 256
"""Characters; the longest tokens of today are lines of 128 spaces."""

KEEPS_STOPS = {"stop_reason": "include_stop_str_in_output", "matched_stop": "no_stop_trim"}
"""Members of answers by which servers are known that can keep a stop text in their output, and the field of a request
that asks for it: vLLM's and SGLang's."""

OPTIONAL_FIELDS = frozenset(
    {*KEEPS_STOPS.values(), "return_token_ids", "stream_options", "logprobs", "parallel_tool_calls", "seed"}
)
"""Fields of a request that are left out if the server refuses them. Without `seed` its answers are others each time."""


_FAILED = re.compile(r"[45]\d\d", re.ASCII)
"""The status of a response that is a failure."""

NEUTRAL_FIELDS = {"temperature": 1.0, "top_p": 1.0}
"""Fields that mean nothing with these values, and are left out as well: models that think take no other, or none."""


class Mode(StrEnum):
    """How a context is sent to a server."""

    TOKENS = "tokens"
    """As ids, to `/completions`, which returns ids: vLLM and compatible servers."""
    COMPLETIONS = "completions"
    """As text, to `/completions`."""
    CHAT = "chat"
    """As turns, to `/chat/completions`: injected text becomes the next turn of the user."""

    @property
    def path(self) -> str:
        return "chat/completions" if self is Mode.CHAT else "completions"


def request(
    mode: Mode,
    model: str,
    context: Context,
    sampling: Sampling,
    *,
    keep_stops: str | None = None,
    tools: bool = False,
    thoughts: str = "reasoning_content",
) -> dict[str, Any]:
    """The body of a request. `keep_stops`: send stop texts, and this field, by which the server keeps them in its
    output. `tools`: offer the tools of the context, to a server with native calls, which also gets its thoughts back,
    in the member `thoughts` of a message."""
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "stream": True,
        "return_token_ids": True,
        "logprobs": True if mode is Mode.CHAT else 0,
    }
    match mode:
        case Mode.TOKENS:
            # Tags may be special tokens; here they are text.
            body |= {"prompt": context.token_ids, "skip_special_tokens": False, "spaces_between_special_tokens": False}
        case Mode.COMPLETIONS:
            body |= {"prompt": context.text, "stream_options": {"include_usage": True}}
        case Mode.CHAT:
            body["messages"] = [{"role": turn.role, "content": turn.content} for turn in context.turns]
            body["stream_options"] = {"include_usage": True}
            if tools and context.tools:
                messages = native_calls.messages(context.turns, context.thoughts, thoughts)
                body |= {"messages": messages, **native_calls.offer(context.tools)}
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if keep_stops and sampling.stop:
        body |= {"stop": list(sampling.stop[:MOST_STOPS]), keep_stops: True}
    return body


class SupportedFields:
    """Remembers which fields of requests a server refuses."""

    def __init__(self) -> None:
        self._refused: set[str] = set()

    def fit(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body without the refused fields. One with a value that means something is sent all the same."""
        refused = {name for name in self._refused if body.get(name) == NEUTRAL_FIELDS.get(name, body.get(name))}
        fit = {name: value for name, value in body.items() if name not in refused}
        if "max_tokens" in self._refused:
            fit["max_completion_tokens"] = body["max_tokens"]
        if not self._refused.isdisjoint(KEEPS_STOPS.values()):  # it would cut them off
            fit.pop("stop", None)
        return fit

    def learn(self, response: HttpResponse, sent: dict[str, Any], needed: Container[str] = ()) -> bool:
        """Whether the server refused a request because of fields that it can do without: they are left out now.

        `needed` are those that we cannot do without. A name that stands in the prompt as well may be a quotation: what
        one prompt says does not change the requests of others.
        """
        if response.status not in (400, 403, 422):
            return False
        text, prompt = response.text, json.dumps(sent.get("messages", sent.get("prompt")))
        needless = OPTIONAL_FIELDS | {name for name, value in NEUTRAL_FIELDS.items() if sent.get(name) == value}
        named = {name for name in (*needless, "max_completion_tokens") if name in text and name not in prompt}
        refused = {name for name in needless & named if name in sent and name not in needed}
        if "max_completion_tokens" in named and _may_be_renamed(response, sent):
            refused.add("max_tokens")
        if refused - self._refused:
            log.info("the server takes no %s", ", ".join(sorted(refused)))
        self._refused |= refused
        return bool(refused)


def _may_be_renamed(response: HttpResponse, sent: dict[str, Any]) -> bool:
    """Whether a refusal may ask for the other name of `max_tokens`. Only chats have it, and vLLM mentions both where a
    prompt and its reply are too long."""
    return "max_tokens" in sent and "messages" in sent and not refusals.context_full(response)


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event of a streamed response."""

    pieces: tuple[str, ...] = ()
    """Its text: a piece for each token if the server gives tokens, else one piece."""
    token_ids: tuple[int, ...] | None = None
    """Ids of its tokens; `None` where the server gives none."""
    logprobs: tuple[float, ...] | None = None
    """One for each piece, before temperature and top-p on most servers; `None` where unknown."""
    finish: FinishReason | None = None
    """Set on the last event with text."""
    tokens: int | None = None
    """Tokens of the whole response by the server's count, on the very last event."""
    billed: Billed | None = None
    """What the server bills for it, on the very last event."""
    calls: tuple[native_calls.Fragment, ...] = ()
    """Its parts of native calls."""
    reasoning: str = ""
    """What the model thinks, where the server sends that beside the text. It counts as a piece without text."""
    reasoning_member: str = ""
    """Where the server sends it."""


def event(data: str) -> StreamEvent:
    """Check and read an event; EngineError if it is malformed or reports a failure."""
    try:
        sent = parsed(SentEvent, data)
    except ValueError as error:
        raise EngineError(f"the server sent what is not an event of an answer: {excerpt(data, 80)}") from error
    if sent.error:
        failed = _failure(sent, data)
        raise (StreamDropped if failed and failed.busy else EngineError)(f"the server failed: {complaint(data)}")
    usage, bill = (sent.usage or SentUsage()).completion_tokens, billed(sent.usage)
    if not sent.choices:
        return StreamEvent(tokens=usage, billed=bill)
    choice, delta = sent.choices[0], sent.choices[0].delta
    text, thoughts = (choice.text or "", "") if delta is None else content.text_and_thoughts(delta.content)
    if delta is not None and delta.refusal:  # of OpenAI, in the place of a content
        text += delta.refusal
    tokens, logprobs = _logprobs(choice.logprobs)
    ids = choice.token_ids
    known = len(tokens) if tokens else len(ids or ())
    reasoning, member = _reasoning(delta, thoughts)
    return StreamEvent(
        _cut(text, tokens, known) or ("",) * bool(reasoning),
        tuple(ids) if ids is not None and len(ids) == known else None,
        logprobs if tokens else None,
        finish_reason(choice),
        usage,
        bill,
        native_calls.fragments((delta or SentDelta()).tool_calls or ()),
        reasoning,
        member,
    )


def reported(data: str) -> HttpResponse | None:
    """The failure that an event reports, as the response that it would have been; `None` if it has no status. Servers
    that answer 200 before they have begun send it so."""
    try:
        return _failure(parsed(SentEvent, data), data)
    except ValueError:
        return None


def _failure(sent: SentEvent, data: str) -> HttpResponse | None:
    """The same of an event that has been read."""
    code = str(sent.error.get("code")) if isinstance(sent.error, dict) else ""  # a text from LiteLLM
    return HttpResponse(int(code), data.encode("utf-8", "replace")) if _FAILED.fullmatch(code) else None


def check_stream(host: str, kind: str | None) -> None:
    """EngineError if a response of this content type is not a stream of events."""
    if not (kind or "").lower().startswith("text/event-stream"):
        raise EngineError(f"{host} does not stream: it sent {excerpt(kind or 'nothing')}")


def models(body: str) -> dict[str, int | None]:
    """Models of a server and, if given, their context lengths in tokens; empty if the body is not a list of models."""
    try:
        listed = parsed(SentModels, body).data
    except ValueError:
        return {}
    lengths = {model.id: model.max_model_len for model in listed}
    return {name: n if isinstance(n, int) and 0 < n <= MOST else None for name, n in lengths.items()}


def prompt_tokens(body: str) -> int | None:
    """Tokens of the prompt in a response without streaming; `None` if they are not given."""
    try:
        return (parsed(SentReply, body).usage or SentUsage()).prompt_tokens
    except ValueError:
        return None


def choice(body: str) -> dict[str, Any]:
    """The choice in a response without streaming; empty if there is none."""
    try:
        found = json.loads(body)["choices"][0]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _reasoning(delta: SentDelta | None, within: str) -> tuple[str, str]:
    """Thoughts, and their member: `reasoning_content` of DeepSeek, SGLang, llama.cpp and LiteLLM, `reasoning` of vLLM,
    OpenRouter and Ollama; of Mistral those `within` its content. Some send both, with the same text."""
    for member in ("reasoning_content", "reasoning"):
        if isinstance(text := getattr(delta, member, None), str) and text:
            return text, member
    return within, content.MEMBER if within else ""


def _cut(text: str, tokens: list[str], known: int) -> tuple[str, ...]:
    """The text of each token. If the texts of the tokens are unknown, or do not add up to it (part of a character), the
    last token gets all of it."""
    if known == 0:
        return (text,) if text else ()
    return tuple(tokens) if tokens and "".join(tokens) == text else ("",) * (known - 1) + (text,)


def _logprobs(sent: SentLogprobs | None) -> tuple[list[str], tuple[float, ...] | None]:
    """Texts and log-probabilities of the tokens of a chat or completion; `None` if a log-probability is none."""
    if sent is None:
        return [], None
    if sent.content is not None:
        tokens, found = [entry.token for entry in sent.content], [entry.logprob for entry in sent.content]
    else:
        tokens, found = sent.tokens, sent.token_logprobs
    logprobs = tuple(p for p in found if p is not None and is_logprob(p))
    return tokens, logprobs if len(logprobs) == len(tokens) else None


class Reader:
    """Turns the events of one response into chunks, up to the token that completes a stop text.

    Native calls become text when the response ends.
    """

    def __init__(self, sampling: Sampling, tokenizer: Tokenizer | None) -> None:
        """`tokenizer` in `tokens` mode, where it decodes the ids."""
        self.read = 0
        """Pieces so far."""
        self._known, self._fewest, self._before_stop = 0, Fewest(), Fewest()
        """Tokens among them, where the server names these; and how many the text that came is at least, and the text
        that is kept of it, without what follows a stop text."""
        self._most, self._characters = sampling.max_tokens, 0
        self._pieces = tokenizer.pieces() if tokenizer else None
        self._stops = StopFinder(sampling.stop)
        self._calls: list[native_calls.Fragment] = []
        self._last_text = "\n"
        # Servers give log-probabilities before temperature and top-p; they are exact only with these settings.
        self._trusted = sampling.temperature in (0.0, 1.0) and sampling.top_p == 1.0

    def chunk(self, event: StreamEvent) -> Chunk:
        self._characters += sum(map(len, event.pieces)) + len(event.reasoning)
        self._characters += sum(len(part.name + part.arguments) for part in event.calls)
        if self._characters > LONGEST_TOKEN * (self._most + 1):
            raise EngineError(f"the server sent {self._characters} characters for {self._most} tokens")
        for text in (event.reasoning, *(part.name + part.arguments for part in event.calls), *event.pieces):
            self._fewest.add(text)
        if event.calls or self._calls:
            event = self._with_calls(event)
        pieces, finish = event.pieces, event.finish
        logprobs = event.logprobs if self._trusted else None
        if self._pieces is not None:
            if event.token_ids is None:
                raise EngineError("the server gives no token ids any more")
            wanted = self._most - self._known + 1  # one too many says that there are more
            ids = event.token_ids[:wanted]
            event, pieces = replace(event, token_ids=ids), tuple(map(self._pieces.piece, ids))
            if pieces and finish is FinishReason.EOS:
                pieces = (*pieces[:-1], "")  # sampled, but no text
        tokens_known = event.token_ids is not None or event.logprobs is not None
        for i, piece in enumerate(pieces):
            end = self._stops.feed(piece)
            if end is not None:
                pieces = (*pieces[:i], piece if tokens_known else piece[:end])
                finish = FinishReason.STOP
                break
        if self._pieces is None:
            event = self._in_tokens(replace(event, pieces=pieces), finish is FinishReason.STOP)
            pieces, tokens_known = event.pieces, event.token_ids is not None or event.logprobs is not None
            logprobs = event.logprobs if self._trusted else None
        n = self._within(pieces, tokens_known)
        reasoning = event.reasoning
        if n < len(pieces):  # the server does not keep to it
            pieces, finish, reasoning = pieces[:n], FinishReason.LENGTH, ""
        self._last_text = "".join(pieces) or self._last_text
        ids, logprobs = event.token_ids and event.token_ids[:n], logprobs and logprobs[:n]
        return Chunk(pieces, ids, logprobs, finish, reasoning=reasoning)

    def _within(self, pieces: tuple[str, ...], tokens_known: bool) -> int:
        """How many of the next pieces are within `max_tokens`.

        Pieces whose tokens the server does not name may be parts of tokens: then the text says when it is too long.
        """
        for i in range(len(pieces)):
            self.read += 1
            self._known += tokens_known
            if self._known > self._most or min(self.read, self._fewest.tokens) > self._most:
                return i
        return len(pieces)

    def _in_tokens(self, event: StreamEvent, stopped: bool) -> StreamEvent:
        """The event with as many pieces as all that was said has tokens at least: a server may send many words at
        once, and each piece counts as one. What follows a stop text is not said."""
        for text in (event.reasoning, *event.pieces):
            self._before_stop.add(text)
        least = self._before_stop.tokens if stopped and not self._calls else self._fewest.tokens
        n = least - self.read
        if not event.pieces or n <= len(event.pieces):
            return event
        text = "".join(event.pieces)
        pieces = tuple(text[len(text) * i // n : len(text) * (i + 1) // n] for i in range(n))
        return replace(event, pieces=pieces, token_ids=None, logprobs=None)

    def _with_calls(self, event: StreamEvent) -> StreamEvent:
        """The last event with the text of all calls. A fragment is a piece; the text of the calls stands in place of
        the first one."""
        pieces = event.pieces or ("",) * bool(event.calls and self._calls)
        self._calls += event.calls
        if len(self._calls) > BYTES * self._most:
            raise EngineError(f"the server sent {len(self._calls)} parts of calls for {self._most} tokens")
        if event.finish is None:
            return replace(event, pieces=pieces)
        within_line = not ("".join(pieces) or self._last_text).endswith("\n")
        text = "\n" * within_line + native_calls.calls_text(self._calls)
        return replace(event, pieces=(*pieces, text), token_ids=None, logprobs=None)
