"""OpenAI's `usage` and other numbers of a served episode."""

from __future__ import annotations

from typing import Any

from orgthink.measure.latency import concurrency, critical_path
from orgthink.measure.usage import context_tokens, sampled_tokens
from orgthink.record.episode import Episode, StopReason, Trace

_CUT = (StopReason.BUDGET, StopReason.LENGTH, StopReason.DEADLINE)


def usage(episode: Episode) -> dict[str, Any]:
    """Tokens of the whole tree. A token of a context counts once, however often it was sent.

    `orchestration` tokens are those of all agents but the first.
    """
    read = [_read(trace) for trace in episode.traces]
    sampled = [trace.steps for trace in episode.traces]
    return {
        "prompt_tokens": sum(read),
        "completion_tokens": sum(sampled),
        "total_tokens": sum(read) + sum(sampled),
        "prompt_tokens_details": {"orchestration_input_tokens": sum(read[1:])},
        "completion_tokens_details": {"orchestration_output_tokens": sum(sampled[1:])},
    }


def response_usage(episode: Episode) -> dict[str, Any]:
    """The same in the form of the Responses interface.

    No token comes from a cache, as what is sent again is not counted again. `reasoning` tokens are those of all agents
    but the first, so at least these.
    """
    counted = usage(episode)
    cache = {"cached_tokens": 0, "cache_write_tokens": 0}
    return {
        "input_tokens": counted["prompt_tokens"],
        "input_tokens_details": counted["prompt_tokens_details"] | cache,
        "output_tokens": counted["completion_tokens"],
        "output_tokens_details": counted["completion_tokens_details"]
        | {"reasoning_tokens": counted["completion_tokens_details"]["orchestration_output_tokens"]},
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
    """`length` where a limit ended the episode, or its first agent."""
    return "length" if episode.stop in _CUT else "stop"


def _read(trace: Trace) -> int:
    """People read and write no tokens."""
    return 0 if trace.person else sum(tokens for _, tokens in context_tokens(trace))
