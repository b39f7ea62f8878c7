"""Requests in the OpenAI format: their bodies, the fields that a server accepts, and why it refuses them. No I/O."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from orgthink.engines.endpoint import tool_calls
from orgthink.engines.engine import Context
from orgthink.record.episode import Sampling
from orgthink.util.http import HttpResponse

log = logging.getLogger(__name__)

MOST_STOPS = 4
"""Most stop texts in a request, by the limits of OpenAI and vLLM. At others the client closes the connection."""

KEEPS_STOPS = {"stop_reason": "include_stop_str_in_output", "matched_stop": "no_stop_trim"}
"""Servers that can keep a stop text in their output: a member of their answers, and the field of a request for it. The
first is vLLM, the second SGLang."""

OPTIONAL_FIELDS = frozenset(
    {*KEEPS_STOPS.values(), "return_token_ids", "stream_options", "logprobs", "parallel_tool_calls", "seed"}
)
"""Fields of a request that are left out if the server refuses them. Without `seed` its answers do not repeat."""

NEUTRAL_FIELDS = {"temperature": 1.0, "top_p": 1.0}
"""Fields that mean nothing with these values and are then optional: reasoning models accept no other value, or none."""

REFUSED = (400, 413, 422)
"""Statuses of a request that would be refused again as it stands."""

_FULL_CODES = ("context_length_exceeded", "exceed_context_size_error")
"""Error codes for a full context, of OpenAI and of llama.cpp."""

_FULL = re.compile(
    r"context.{0,24}(length|size|window).{0,80}(exceed|maximum|limit|too|of \d)"
    r"|(exceed|maximum|longer|larger).{0,80}context|(prompt|input).{0,24} too (long|large)"
    r"|maximum number of tokens|max_new_tokens"
    r"|input tokens exceed|maximum prompt length|reduce the length of (the|your) (messages|prompt)",
    re.IGNORECASE,
)
"""Messages for a full context of servers without an error code: vLLM, SGLang, TGI, Groq, xAI and others."""

_TOO_FEW = re.compile(r"could not finish the message because|model output limit was reached", re.IGNORECASE)
"""Messages of OpenAI and Azure when a reasoning model has used all its tokens before its answer."""


CHAT, COMPLETIONS = "chat/completions", "completions"
"""Paths of requests: a chat sends the turns of a context, and injected text becomes the next turn of the user. A
completion sends ids and returns ids, as vLLM and compatible servers do."""


def request(
    path: str,
    model: str,
    context: Context,
    sampling: Sampling,
    *,
    keep_stops: str | None = None,
    tools: bool = False,
    template: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The body of a request to this path.

    `keep_stops`: send stop texts, and this field, by which the server keeps them in its output. `tools`: offer the
    tools of the context, and send reasoning back. `template`: arguments for the chat template of the server, which
    fills it in for turns.
    """
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "stream": True,
        "return_token_ids": True,
        "logprobs": True if path == CHAT else 0,
    }
    if path == COMPLETIONS:
        # Tags may be special tokens; here they are text.
        body |= {"prompt": context.token_ids, "skip_special_tokens": False, "spaces_between_special_tokens": False}
    else:
        body["messages"] = [{"role": turn.role, "content": turn.content} for turn in context.turns]
        body["stream_options"] = {"include_usage": True}
        body |= {"chat_template_kwargs": dict(template)} if template else {}
        if tools and context.tools:
            body |= {
                "messages": tool_calls.messages(context.turns, context.thoughts),
                **tool_calls.offer(context.tools),
            }
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
        """The body without the refused fields. A neutral field with another value is still sent."""
        refused = {name for name in self._refused if body.get(name) == NEUTRAL_FIELDS.get(name, body.get(name))}
        fit = {name: value for name, value in body.items() if name not in refused}
        if "max_tokens" in self._refused:
            fit["max_completion_tokens"] = body["max_tokens"]
        if not self._refused.isdisjoint(KEEPS_STOPS.values()):  # the server would cut them off
            fit.pop("stop", None)
        return fit

    def learn(self, response: HttpResponse, sent: dict[str, Any]) -> bool:
        """Whether the server refused a request because of optional fields, which are left out from now on.

        A name that occurs in the prompt, too, may be a quotation, and is ignored.
        """
        if response.status not in (400, 403, 422):
            return False
        optional = OPTIONAL_FIELDS | {name for name, value in NEUTRAL_FIELDS.items() if sent.get(name) == value}
        present = (name for name in (*optional, "max_completion_tokens") if name in response.text)
        named = {name for name in present if name not in str(sent.get("messages", sent.get("prompt")))}
        refused = {name for name in optional & named if name in sent}
        # Only chats have the other name, and vLLM mentions both where a prompt and its reply are too long.
        may_be_renamed = {"max_tokens", "messages"} <= sent.keys() and not context_full(response)
        if "max_completion_tokens" in named and may_be_renamed:
            refused.add("max_tokens")
        if refused - self._refused:
            log.info("the server does not support %s", ", ".join(sorted(refused)))
        self._refused |= refused
        return bool(refused)


def context_full(reply: HttpResponse) -> bool:
    """Whether a request was refused because the context is full."""
    if reply.status not in REFUSED:
        return False
    return any(f'"{code}"' in reply.text for code in _FULL_CODES) or _FULL.search(reply.complaint) is not None


def too_few_tokens(reply: HttpResponse) -> bool:
    """Whether a request would succeed with more tokens."""
    return reply.status in REFUSED and _TOO_FEW.search(reply.complaint) is not None
