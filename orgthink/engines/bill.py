"""What a server bills for a request, from the counts at the end of its answer. No I/O."""

from __future__ import annotations

from typing import Any

from orgthink.engines.schema import MOST, SentUsage
from orgthink.record.episode import Billed


def billed(usage: SentUsage | None) -> Billed | None:
    """The counts of a request, wherever servers put them; `None` without any.

    A part that is larger than the whole is unknown.
    """
    if usage is None or (usage.prompt_tokens is None and usage.completion_tokens is None):
        return None
    prompt, output = usage.prompt_tokens, _output(usage)
    cached = _member(usage.prompt_tokens_details, "cached_tokens", usage.prompt_cache_hit_tokens)  # DeepSeek
    reasoning = _member(usage.completion_tokens_details, "reasoning_tokens", usage.reasoning_tokens)  # SGLang
    return Billed(prompt, _within(cached, prompt), output, _within(reasoning, output))


def _output(usage: SentUsage) -> int | None:
    """xAI and Gemini leave the tokens of thoughts out of those of the completion, and count them in the total."""
    prompt, output, total = usage.prompt_tokens, usage.completion_tokens, _count(usage.total_tokens)
    return output if None in (prompt, output, total) else max(output, total - prompt)  # type: ignore[operator]


def _member(details: Any, name: str, otherwise: Any) -> int | None:
    """A count of the details, or else another one."""
    found = _count(details.get(name)) if isinstance(details, dict) else None
    return _count(otherwise) if found is None else found


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= MOST else None


def _within(part: int | None, whole: int | None) -> int | None:
    return part if part is not None and whole is not None and part <= whole else None
