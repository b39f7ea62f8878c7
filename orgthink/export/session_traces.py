"""Episodes as session traces, which the Hugging Face Hub shows: a session for every agent.

The format is the Hub's Session Trace Simple Format: a line of JSON for the session, then one for each message. An agent
that was forked has a session of its own, whose header names its `parent`: the Hub ignores names that it does not know.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from orgthink.export.messages import ChatTurn, turns
from orgthink.record.episode import Episode, Trace

HARNESS = "orgthink"
"""Who wrote a session, for the Hub."""

_LONGEST_NAME = 80
"""Characters of the title of a session."""

Line = dict[str, Any]


def sessions(episode: Episode, began: float = 0.0) -> Iterator[list[Line]]:
    """The sessions of an episode: one for each agent, none for tools, whose calls stand in others.

    `began` is when the episode began, in seconds since 1970.
    """
    for trace in episode.traces:
        if trace.parent is None or not trace.is_code or trace.edges:
            yield [_header(trace, episode), *(_line(turn, began) for turn in turns(trace, episode))]


def _header(trace: Trace, episode: Episode) -> Line:
    query = " ".join(episode.problem.query.split())
    return {
        "type": "session",
        "harness": HARNESS,
        "id": f"{episode.id}|{trace.agent}",
        "name": f"{trace.agent}: {query}"[:_LONGEST_NAME],
        "parent": None if trace.parent is None else f"{episode.id}|{trace.parent}",
        "episode": episode.id,
        "role": trace.role,
        "status": str(trace.status),
        "score": None if episode.grade is None else episode.grade.score,
    }


def _line(turn: ChatTurn, began: float) -> Line:
    calls = [
        {"id": call.id, "function": {"name": call.name, "arguments": json.dumps({"key": call.key})}}
        for call in turn.calls
    ]
    found = {
        "role": turn.role,
        "content": turn.content,
        "toolCalls": calls or None,
        "toolCallId": turn.answers,
        "timestamp": None if turn.seconds is None else round(1000 * (began + turn.seconds)),
        "model": turn.model,
    }
    return {"type": "message", "message": {name: value for name, value in found.items() if value is not None}}
