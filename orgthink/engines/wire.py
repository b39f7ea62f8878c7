"""The OpenAI wire format: contexts and settings → requests, server-sent events → text and tokens. No I/O."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from orgthink.engines.engine import Context, EngineError, Finish
from orgthink.episode import Sampling

OPTIONAL = frozenset({"include_stop_str_in_output", "return_token_ids", "stream_options", "logprobs"})
"""Fields that a request can do without, where a server refuses them."""

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


def request(mode: Mode, model: str, context: Context, sampling: Sampling, *, stops: bool) -> dict[str, Any]:
    """The body of a request. `stops`: name stop texts, to a server that leaves them in its answer."""
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
        text = choice["text"] if "text" in choice else choice["delta"].get("content")
        tokens, logprobs = _logprobs(choice.get("logprobs"))
        ids = choice.get("token_ids")
        known = len(tokens) if tokens else len(ids or ())
        return Event(
            _cut(text or "", tokens, known),
            tuple(ids) if ids is not None and len(ids) == known else None,
            logprobs if tokens else None,
            _finish(choice),
            usage,
        )
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise EngineError(f"the server sent what is not an event of an answer: {data[:80]!r}") from error


def models(body: str) -> dict[str, int | None]:
    """Names in a list of models, and their contexts in tokens where told; empty if it is no list."""
    try:
        return {model["id"]: model.get("max_model_len") for model in json.loads(body)["data"]}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


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


def _logprobs(raw: dict[str, Any] | None) -> tuple[list[str], tuple[float, ...]]:
    """Texts and log-probabilities of the tokens, of a chat or a completion."""
    if not raw:
        return [], ()
    if "content" in raw:
        return [entry["token"] for entry in raw["content"] or ()], tuple(
            entry["logprob"] for entry in raw["content"] or ()
        )
    return list(raw["tokens"]), tuple(raw["token_logprobs"])


def _finish(choice: dict[str, Any]) -> Finish | None:
    match choice.get("finish_reason"):
        case None:
            return None
        case "length":
            return Finish.LENGTH
        case "stop":
            return Finish.STOP if choice.get("stop_reason") is not None else Finish.EOS
        case other:
            raise EngineError(f"the server ended the answer: {other}")


def complaint(body: str) -> str:
    """What a server says went wrong, on one line."""
    try:
        raw = json.loads(body)
        found = raw.get("error") or raw.get("message") or raw.get("detail") or raw
        body = found.get("message") or json.dumps(found) if isinstance(found, dict) else str(found)
    except (ValueError, AttributeError):
        pass
    return " ".join(body.split())[:300] or "nothing"
