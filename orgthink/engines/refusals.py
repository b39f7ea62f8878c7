"""What a server means by a refusal: that its context is full, or that it took a request and had too few tokens to
answer it. No I/O."""

from __future__ import annotations

import re

from orgthink.engines.schema import SentRefusal, parsed
from orgthink.util.http_response import HttpResponse, complaint

REFUSED = (400, 413, 422)
"""Statuses of a request that would be refused again as it stands."""

_FULL_CODES = ("context_length_exceeded", "exceed_context_size_error")
"""Of OpenAI, and of servers that took its code over; of llama.cpp."""

_FULL = re.compile(
    r"context.{0,24}(length|size|window).{0,80}(exceed|maximum|limit|too|of \d)"
    r"|(exceed|maximum|longer|larger).{0,80}context|(prompt|input).{0,24} too (long|large)"
    r"|maximum number of tokens|max_new_tokens"
    r"|input tokens exceed|maximum prompt length|reduce the length of (the|your) (messages|prompt)",
    re.IGNORECASE,
)
"""How servers say that a prompt, or a prompt and the tokens asked for, do not fit, where they give no code: OpenAI,
vLLM, SGLang, llama.cpp, TGI, Groq, xAI and others."""

_TOO_FEW = re.compile(r"could not finish the message because|model output limit was reached", re.IGNORECASE)
"""How OpenAI and Azure refuse a model that thinks, after it has thought for all the tokens that it was given."""

_LEFT = re.compile(
    r"context length (?:is|of) (\d+).*?(?:has|contains|\()\s?(?:at least )?(\d+) (?:input tokens|in (?:the|your))",
    re.IGNORECASE | re.DOTALL,
)
"""The context and the prompt in the refusals of vLLM and OpenAI."""


def context_full(reply: HttpResponse) -> bool:
    """Whether a request was refused because the context is full. The code says it in words that stay the same."""
    if reply.status not in REFUSED:
        return False
    return any(code in _FULL_CODES for code in _codes(reply.text)) or _FULL.search(complaint(reply.text)) is not None


def too_few_tokens(reply: HttpResponse) -> bool:
    """Whether a request was accepted, and refused after its tokens were spent: with more of them it works."""
    return reply.status in REFUSED and _TOO_FEW.search(complaint(reply.text)) is not None


def tokens_left(refusal: str) -> int | None:
    """Number of tokens that a prompt leaves for its reply, by the server's refusal; `None` if it does not say."""
    found = _LEFT.search(refusal)
    left = int(found[1]) - int(found[2]) if found else 0
    return left if left > 0 else None


def _codes(body: str) -> list[object]:
    """Where a body may have the code of its error."""
    try:
        sent = parsed(SentRefusal, body)
    except ValueError:
        return []
    error = sent.error if isinstance(sent.error, dict) else {}
    return [error.get("code"), error.get("type"), sent.code]
