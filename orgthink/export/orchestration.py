"""Episodes in the public schema of orchestration traces: arXiv 2605.02801, `trace-schema/` of
github.com/xxzcc/awesome-llm-mas-rl.

    orchestrator_decision               a stretch that the root or another agent with forks sampled
    spawn, tool_call                    a fork of a model, of code
    return, tool_result, despawn        the end of a forked model, of code, of a cancelled one
    aggregate                           a join; without `from`: the answer

Instead of texts it holds their SHA-256. `key`, `at`, `tokens` and others are fields of events that the schema does not
name and allows. `orgthink import --format orchestration` reads the document back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import accumulate
from typing import Any

from orgthink.measure.accuracy import all_correct
from orgthink.measure.latency import concurrency, critical_path
from orgthink.measure.usage import sampled_tokens
from orgthink.record.episode import EdgeKind, Episode, Origin, Trace

Event = dict[str, Any]

FORKS = {"spawn": "spawn", "tool_call": "tool_dependency"}
"""Types of the events that fork an agent → type of the edge to its first event."""
ENDS = ("return", "tool_result", "despawn")
"""Types of the events that end an agent."""


def trace_of(episode: Episode) -> dict[str, Any]:
    """The episode as a document of the schema, without texts."""
    events = [
        {"id": f"e{number}", **event}
        for number, event in enumerate(sorted(_events(episode), key=lambda e: (e["t"], e["type"] == "aggregate")))
    ]
    grade, calls = episode.grade, sum(trace.is_code for trace in episode.traces[1:])
    metrics: dict[str, float | None] = {
        "task_success": None if grade is None else float(bool(all_correct(episode))),
        "solutions_correct": None if grade is None else grade.correct,
        "solutions_required": None if grade is None else grade.required,
        "critical_path_steps": critical_path(episode),
        "parallelism_efficiency": concurrency(episode),
        "capacity": episode.capacity,
        "sample": episode.sample,
    }
    return {
        "trace_id": episode.id,
        "task_id": episode.problem.id,
        "system": episode.organization,
        "topology": ("unknown", "centralized", "hierarchical")[
            min(2, sum(bool(trace.forks) for trace in episode.traces))
        ],
        "events": events,
        "edges": list(_edges(events)),
        "rewards": {} if grade is None else {"team": grade.score},
        "costs": {"tokens": sampled_tokens(episode), "wall_clock_s": _time(episode.seconds), "tool_calls": calls},
        "metrics": {name: value for name, value in metrics.items() if value is not None},
    }


def _events(episode: Episode) -> Iterator[Event]:
    """The events without their ids, agent by agent."""
    traces = {trace.agent: trace for trace in episode.traces}
    for number, trace in enumerate(episode.traces):
        decisions = list(_decisions(trace)) if number == 0 or trace.forks else []
        yield from decisions
        for index, edge in enumerate(trace.edges):
            child, own = traces[edge.child], {"key": edge.key, "at": edge.at, "index": index}
            if edge.kind is EdgeKind.JOIN:
                after = max(child.end, _moment(decisions, edge.at))
                yield _event("aggregate", trace, after, {"from": child.agent, **own})
            elif child.is_code:
                yield _event("tool_call", trace, child.start, {"tool": child.role, "to": child.agent, **own})
            else:
                yield _event("spawn", trace, child.start, {"to": child.agent, **own, "role": child.role})
        over = {
            "number": number,
            "tokens": trace.steps,
            "model": trace.model,
            "stop": trace.stop,
            "status": trace.status,
            "cancel": trace.cancel,
        }
        if trace.parent is None:
            over |= {"content_ref": _digest(episode.answer), "outcome": episode.stop}
            yield _event("aggregate", trace, episode.seconds, over)
        else:
            kind, trusted = ("tool_result", False) if trace.is_code else ("return", None)
            over |= {
                "from": trace.agent,
                "to": trace.parent,
                "content_ref": _digest(trace.returned),
                "trusted": trusted,
            }
            yield _event("despawn" if trace.cancel else kind, trace, trace.end, over)


def _decisions(trace: Trace) -> Iterator[Event]:
    """The stretches that an agent sampled."""
    for index, span in enumerate(one for one in trace.spans if one.origin is Origin.SAMPLED and one.tokens):
        own = {"index": index, "tokens": span.tokens, "content_ref": _digest(span.text), "end": _time(span.end)}
        yield _event("orchestrator_decision", trace, trace.start if span.start is None else span.start, own)


def _moment(decisions: list[Event], at: int) -> float:
    """When an agent had sampled so many tokens."""
    counted = zip(decisions, accumulate(one["tokens"] for one in decisions), strict=True)
    return next((one.get("end", one["t"]) for one, count in counted if count >= at > 0), 0.0)


def _event(kind: str, trace: Trace, t: float, more: Mapping[str, Any]) -> Event:
    found = {"t": _time(t), "type": kind, "agent": trace.agent, "role": trace.role, **more}
    return {name: value for name, value in found.items() if value is not None}


def _edges(events: list[Event]) -> Iterator[dict[str, str]]:
    """From event to event: in time for each agent, from a fork to the child's first event, from its end to its join."""
    last: dict[str, str] = {}
    forked = {event["to"]: event for event in events if event["type"] in FORKS}
    ends = {event["agent"]: event["id"] for event in events if event["type"] in ENDS}
    for event in events:
        agent, own = event["agent"], event["id"]
        if agent in last:
            yield {"src": last[agent], "dst": own, "type": "temporal"}
        elif agent in forked:
            yield {"src": forked[agent]["id"], "dst": own, "type": FORKS[forked[agent]["type"]]}
        if event["type"] == "aggregate" and "from" in event:
            yield {"src": ends[event["from"]], "dst": own, "type": "return"}
        last[agent] = own


def _time(seconds: float | None) -> float | None:
    """Seconds from 0 on, to the microsecond; `None` if unknown."""
    return None if seconds is None else max(0.0, round(seconds, 6))


def _digest(text: str | None) -> str | None:
    """The digest of a text. That of a digest, which came from such a document, is itself."""
    if text is None or re.fullmatch("sha256:[0-9a-f]{64}", text):
        return text
    return "sha256:" + sha256(text.encode(errors="surrogatepass")).hexdigest()
