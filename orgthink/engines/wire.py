"""The OpenAI wire format: contexts and settings → requests, server-sent events → chunks. No I/O."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from orgthink.engines import native_calls
from orgthink.engines.engine import Chunk, Context, EngineError, Finish
from orgthink.engines.stops import StopFinder
from orgthink.engines.tokenizer import Tokenizer
from orgthink.episode import Sampling
from orgthink.http import complaint

MOST_STOPS = 4
"""Stop texts that a request may name, by OpenAI's rules and vLLM's. At the others the client hangs up."""


class Mode(StrEnum):
    """How a context is put to a server."""

    TOKENS = "tokens"
    """As ids, to `/completions`; ids come back. vLLM and its like."""
    COMPLETIONS = "completions"
    """As text, to `/completions`."""
    CHAT = "chat"
    """As turns, to `/chat/completions`: what is injected arrives as the next turn of the user."""

    @property
    def path(self) -> str:
        return "chat/completions" if self is Mode.CHAT else "completions"


def request(
    mode: Mode, model: str, context: Context, sampling: Sampling, *, stops: bool, tools: bool = False
) -> dict[str, Any]:
    """The body of a request. `stops`: name stop texts, to a server that leaves them in its answer. `tools`: offer the
    context's, to a server that has native calls."""
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
            # Tags may be special tokens, which are text to us.
            body |= {"prompt": context.token_ids, "skip_special_tokens": False, "spaces_between_special_tokens": False}
        case Mode.COMPLETIONS:
            body |= {"prompt": context.text, "stream_options": {"include_usage": True}}
        case Mode.CHAT:
            body["messages"] = [{"role": turn.role, "content": turn.content} for turn in context.turns]
            body["stream_options"] = {"include_usage": True}
            if tools and context.tools:
                body |= {"messages": native_calls.messages(context.turns), **native_calls.offer(context.tools)}
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if stops and sampling.stop:
        body |= {"stop": list(sampling.stop[:MOST_STOPS]), "include_stop_str_in_output": True}
    return body


@dataclass(frozen=True, slots=True)
class Event:
    """One event of an answer."""

    pieces: tuple[str, ...] = ()
    """Its text, by token if the server told the tokens, else as one piece."""
    token_ids: tuple[int, ...] | None = None
    """Of all its tokens; `None` where the server does not tell."""
    logprobs: tuple[float, ...] | None = None
    """One for each piece, before temperature and top-p on most servers; `None` where unknown."""
    finish: Finish | None = None
    """Set on the last event with text."""
    tokens: int | None = None
    """Tokens of the whole answer by the server's count, on the last event of all."""
    calls: tuple[native_calls.Fragment, ...] = ()
    """What it adds to native calls."""


def event(data: str) -> Event:
    """Read an event; EngineError if it is none, or tells of a failure."""
    try:
        raw = json.loads(data)
        if "error" in raw:
            raise EngineError(f"the server failed: {complaint(data)}")
        usage = (raw.get("usage") or {}).get("completion_tokens")
        if not raw["choices"]:
            return Event(tokens=usage)
        choice = raw["choices"][0]
        delta = choice if "text" in choice else choice["delta"]
        text = delta["text"] if "text" in choice else delta.get("content")
        tokens, logprobs = _logprobs(choice.get("logprobs"))
        ids = choice.get("token_ids")
        known = len(tokens) if tokens else len(ids or ())
        return Event(
            _cut(text or "", tokens, known),
            tuple(ids) if ids is not None and len(ids) == known else None,
            logprobs if tokens else None,
            _finish(choice),
            usage,
            native_calls.fragments(delta.get("tool_calls")),
        )
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise EngineError(f"the server sent what is not an event of an answer: {data[:80]!r}") from error


def check_stream(host: str, kind: str | None) -> None:
    """EngineError if an answer of this content type is not a stream of events."""
    if not (kind or "").startswith("text/event-stream"):
        raise EngineError(f"{host} does not stream: it sent {kind or 'nothing'}")


def models(body: str) -> dict[str, int | None]:
    """Names in a list of models, and their contexts in tokens where told; empty if it is no list."""
    try:
        return {model["id"]: model.get("max_model_len") for model in json.loads(body)["data"]}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def prompt_tokens(body: str) -> int | None:
    """Tokens of the prompt, where an answer without streaming tells them."""
    try:
        return json.loads(body)["usage"]["prompt_tokens"]
    except (ValueError, KeyError, TypeError):
        return None


def choice(body: str) -> dict[str, Any]:
    """What a request without streaming brought; empty if it is nothing of the kind."""
    try:
        found = json.loads(body)["choices"][0]
    except (ValueError, KeyError, IndexError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _cut(text: str, tokens: list[str], known: int) -> tuple[str, ...]:
    """Text by token. Where the tokens' texts do not add up (part of a character), all of it goes to the last one."""
    if known == 0:
        return (text,) if text else ()
    return tuple(tokens) if "".join(tokens) == text else ("",) * (known - 1) + (text,)


def _logprobs(raw: dict[str, Any] | None) -> tuple[list[str], tuple[float, ...] | None]:
    """Texts and log-probabilities of the tokens, of a chat or a completion; all `None` if one is no number."""
    if not raw:
        return [], None
    if "content" in raw:
        entries = raw["content"] or ()
        tokens, logprobs = [entry["token"] for entry in entries], tuple(entry["logprob"] for entry in entries)
    else:
        tokens, logprobs = list(raw["tokens"]), tuple(raw["token_logprobs"])
    return tokens, logprobs if all(p is not None and math.isfinite(p) for p in logprobs) else None


def _finish(choice: dict[str, Any]) -> Finish | None:
    match choice.get("finish_reason"):
        case None:
            return None
        case "length":
            return Finish.LENGTH
        case "stop":
            return Finish.STOP if choice.get("stop_reason") is not None else Finish.EOS
        case "tool_calls":
            return Finish.EOS
        case other:
            raise EngineError(f"the server ended the answer: {other}")


class Reader:
    """Turns the events of one answer into chunks, up to the token that completes a stop text.

    Native calls become text at the end, whatever has been said of them by then.
    """

    def __init__(self, sampling: Sampling, tokenizer: Tokenizer | None) -> None:
        """`tokenizer` in `tokens` mode, where the text is that of the ids."""
        self.read = 0
        self._pieces = tokenizer.pieces() if tokenizer else None
        self._stops = StopFinder(sampling.stop)
        self._calls: list[native_calls.Fragment] = []
        self._said = "\n"
        """The last text."""
        # Servers give log-probabilities from before temperature and top-p; these are the same only so.
        self._trusted = sampling.temperature in (0.0, 1.0) and sampling.top_p == 1.0

    def chunk(self, event: Event) -> Chunk:
        if event.calls or self._calls:
            event = self._with_calls(event)
        pieces, finish = event.pieces, event.finish
        logprobs = event.logprobs if self._trusted else None
        if self._pieces is not None:
            if event.token_ids is None:
                raise EngineError("the server gives no token ids any more")
            pieces = tuple(self._pieces.piece(token_id) for token_id in event.token_ids)
            if pieces and finish is Finish.EOS:
                pieces = (*pieces[:-1], "")  # sampled, but no text
        tokens_known = event.token_ids is not None or event.logprobs is not None
        for i, piece in enumerate(pieces):
            end = self._stops.feed(piece)
            if end is not None:
                pieces = (*pieces[:i], piece if tokens_known else piece[:end])
                finish = Finish.STOP
                break
        self.read += len(pieces)
        self._said = "".join(pieces) or self._said
        n = len(pieces)
        return Chunk(pieces, event.token_ids and event.token_ids[:n], logprobs and logprobs[:n], finish)

    def _with_calls(self, event: Event) -> Event:
        """The last event with the text of all calls. A fragment whose tokens are not told counts as one, as a piece of
        text does; in place of the first there is that text."""
        pieces = event.pieces or ("",) * bool(event.calls and self._calls)
        self._calls += event.calls
        if event.finish is None:
            return replace(event, pieces=pieces)
        within_line = not ("".join(pieces) or self._said).endswith("\n")
        text = "\n" * within_line + native_calls.spoken(self._calls)
        return replace(event, pieces=(*pieces, text), token_ids=None, logprobs=None)
