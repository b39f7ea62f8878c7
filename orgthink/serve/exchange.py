"""JSON and server-sent events of both interfaces, without secrets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from orgthink.measure.latency import concurrency, critical_path
from orgthink.measure.usage import context_tokens, sampled_tokens
from orgthink.record.episode import Episode, StopReason
from orgthink.util.redaction import redact_json

_LINE_ENDS = {code: f"\\u{code:04x}" for code in (0x85, 0x2028, 0x2029)}
"""Ends of lines that JSON does not escape."""


def encoded(value: Any) -> bytes:
    """JSON, without the secrets of this process. Half a surrogate pair, which UTF-8 cannot hold, becomes `?`. What
    some clients take for the end of a line is escaped, for it would cut an event."""
    return redact_json(json.dumps(value, ensure_ascii=False)).translate(_LINE_ENDS).encode(errors="replace")


def event(value: Mapping[str, Any]) -> bytes:
    """A server-sent event."""
    return b"data: %s\n\n" % encoded(value)


_CUT = (StopReason.BUDGET, StopReason.LENGTH, StopReason.DEADLINE)


def usage(episode: Episode) -> dict[str, Any]:
    """Tokens of the whole tree. A token of a context counts once, however often it was sent.

    `orchestration` and `reasoning` tokens are those of all agents but the first.
    """
    read = [sum(tokens for _, tokens in context_tokens(trace)) for trace in episode.traces]
    sampled = [trace.steps for trace in episode.traces]
    return {
        "prompt_tokens": sum(read),
        "completion_tokens": sum(sampled),
        "total_tokens": sum(read) + sum(sampled),
        "prompt_tokens_details": {"orchestration_input_tokens": sum(read[1:])},
        "completion_tokens_details": {
            "orchestration_output_tokens": sum(sampled[1:]),
            "reasoning_tokens": sum(sampled[1:]),
        },
    }


def response_usage(episode: Episode) -> dict[str, Any]:
    """Usage in the form of the Responses interface."""
    counted = usage(episode)
    return {
        "input_tokens": counted["prompt_tokens"],
        "input_tokens_details": counted["prompt_tokens_details"] | {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": counted["completion_tokens"],
        "output_tokens_details": counted["completion_tokens_details"],
        "total_tokens": counted["total_tokens"],
    }


def facts(episode: Episode) -> dict[str, Any]:
    """The member `orgthink` of a response."""
    return {
        "episode_id": episode.id,
        "agents": len(episode.traces),
        "critical_path": critical_path(episode),
        "sampled_tokens": sampled_tokens(episode),
        "eta": concurrency(episode),
        "seconds": episode.seconds,
        "stop": episode.stop,
    }


def finish_reason(episode: Episode) -> str:
    """`length` if a limit ended the episode or its first agent."""
    return "length" if episode.stop in _CUT else "stop"
