"""Responses in the OpenAI format: server-sent events → chunks. No I/O."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from orgthink.engines.endpoint.tool_calls import REASONING_MEMBERS, Fragment, calls_text
from orgthink.engines.engine import Chunk, EngineError, FinishReason, StopFinder
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


def event(data: str) -> StreamEvent:
    """Check and read an event; EngineError if it is malformed or reports a failure."""
    try:
        sent = json.loads(data)
        usage = sent.get("usage")
        counts = {"tokens": _count(usage, "completion_tokens"), "billed": _billed(usage)}
        if sent.get("error"):
            failed = HttpResponse(500, data.encode("utf-8", "replace"))
            raise EngineError(f"the server failed: {failed.complaint}")
        return _with_choice(sent["choices"][0], counts) if sent.get("choices") else StreamEvent(**counts)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise EngineError(f"the server sent an invalid event: {excerpt(data, 80)}") from error


def _with_choice(choice: dict[str, Any], counts: dict[str, Any]) -> StreamEvent:
    """The event of a choice: `delta` of a chat, or `text` of a completion. Raises errors of wrong types."""
    delta = choice.get("delta") or {}
    text, reasoning = _text(choice.get("text")) + _content(delta.get("content")), _reasoning(delta)
    tokens, logprobs = _logprobs(choice.get("logprobs"))
    ids = choice.get("token_ids")
    if ids is not None and not all(type(i) is int and 0 <= i < 2**31 for i in ids):
        raise TypeError("an id is not a number")
    known = len(tokens) or len(ids or ())
    return StreamEvent(
        _cut(text, tokens, known) or ("",) * len(reasoning.split()),
        tuple(ids) if ids is not None and len(ids) == known else None,
        logprobs if tokens else None,
        _finish_reason(choice),
        calls=tuple(map(_fragment, delta.get("tool_calls") or ())),
        reasoning=reasoning,
        **counts,
    )


def failure(data: str) -> HttpResponse | None:
    """A failure that the first event reports, as the response that it should have been; `None` without a status. Some
    servers answer 200 before they have begun."""
    try:
        code = str(json.loads(data)["error"]["code"])  # LiteLLM sends it as a text
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    has_status = re.fullmatch(r"[45]\d\d", code, re.ASCII)
    return HttpResponse(int(code), data.encode("utf-8", "replace")) if has_status else None


def models(body: str) -> dict[str, int | None]:
    """Models of a server and, if given, their context lengths in tokens; empty if the body is not a list of models."""
    try:
        listed = [(str(model["id"]), model.get("max_model_len")) for model in json.loads(body)["data"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    return {name: length if type(length) is int and length > 0 else None for name, length in listed}


def choice(body: str) -> tuple[dict[str, Any], int | None]:
    """The choice in a response without streaming, empty without one, and the tokens of the prompt, if known."""
    try:
        sent = json.loads(body)
        return dict(sent["choices"][0]), _count(sent.get("usage"), "prompt_tokens")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return {}, None


def _text(value: Any) -> str:
    """A text. Some servers cut a character in two: half a surrogate pair becomes `?`."""
    if not isinstance(value, str | None):
        raise TypeError("not a text")
    return (value or "").encode("utf-8", "replace").decode()


def _count(counts: Any, name: str) -> int | None:
    """A count of tokens; `None` if there is no valid one."""
    found = counts.get(name) if isinstance(counts, dict) else None
    return found if type(found) is int and 0 <= found < 2**31 else None


def _content(content: Any) -> str:
    """The text of a content. Mistral sends it in parts: `{"type": "text", "text": "…"}`."""
    if not isinstance(content, list):
        return _text(content)
    return "".join(_text(part.get("text")) for part in content if part.get("type") == "text")


def _reasoning(delta: dict[str, Any]) -> str:
    """Reasoning that the server sends separately from the text; servers that send it under both names repeat it.
    Mistral sends it in parts of the content: `{"type": "thinking", "thinking": […]}`."""
    content, found = delta.get("content"), (delta.get(member) for member in REASONING_MEMBERS)
    parts = content if isinstance(content, list) else ()
    within = "".join(_content(part.get("thinking")) for part in parts)
    return next((_text(one) for one in found if one and isinstance(one, str)), within)


def _fragment(call: dict[str, Any]) -> Fragment:
    function, index = call.get("function") or {}, call.get("index")
    if index is not None and type(index) is not int:
        raise TypeError("an index is not a number")
    return Fragment(index, _text(call.get("id")) or None, _text(function.get("name")), _text(function.get("arguments")))


def _finish_reason(choice: dict[str, Any]) -> FinishReason | None:
    """Why the answer ends here; `None` if it continues. EngineError if the server failed, RequestRefused if it will not
    continue, as with content_filter."""
    word = _text(choice.get("finish_reason"))
    if not word:
        return None
    if word == "stop" and isinstance(choice.get("stop_reason"), str):  # of vLLM: a stop text, or the id of a token
        return FinishReason.STOP
    if word in _FINISH:
        return _FINISH[word]
    given_up = word in ("abort", "error") or word.startswith("insufficient_")  # vLLM, Mistral; DeepSeek
    raise (EngineError if given_up else RequestRefused)(f"the server ended the answer: {excerpt(word)}")


def _billed(usage: Any) -> Billed | None:
    """The counts of a request, in the places where servers put them; `None` without any."""
    prompt, output = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    if prompt is None and output is None:
        return None
    total = _count(usage, "total_tokens")
    if prompt is not None and output is not None and total is not None:
        output = max(output, total - prompt)  # xAI and Gemini count reasoning in the total only
    cached = _count(usage.get("prompt_tokens_details"), "cached_tokens")
    cached = _count(usage, "prompt_cache_hit_tokens") if cached is None else cached  # DeepSeek
    return Billed(prompt, cached, output, _count(usage.get("completion_tokens_details"), "reasoning_tokens"))


def _cut(text: str, tokens: list[str], known: int) -> tuple[str, ...]:
    """The text of each token. If the texts of the tokens are unknown, or do not add up to it (part of a character), the
    last token gets all of it."""
    if known == 0:
        return (text,) if text else ()
    return tuple(tokens) if tokens and "".join(tokens) == text else ("",) * (known - 1) + (text,)


def _logprobs(sent: Any) -> tuple[list[str], tuple[float, ...] | None]:
    """Texts and log-probabilities of the tokens of a chat or completion; `None` if a log-probability is invalid."""
    try:
        if (content := sent.get("content")) is not None:
            tokens, found = [_text(entry["token"]) for entry in content], [entry.get("logprob") for entry in content]
        else:
            tokens, found = list(map(_text, sent["tokens"])), sent["token_logprobs"]
        logprobs = tuple(float(p) for p in found if type(p) in (int, float) and is_logprob(p))
    except (AttributeError, KeyError, TypeError, OverflowError):
        return [], None
    return tokens, logprobs if len(logprobs) == len(tokens) == len(found) else None


class Reader:
    """Turns the events of one response into chunks, up to the token that completes a stop text.

    A word is a piece where the server does not name tokens. Native calls become text when the response ends.
    """

    def __init__(self, sampling: Sampling, tokenizer: Tokenizer | None) -> None:
        """`tokenizer` in `tokens` mode, where it decodes the ids."""
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
