"""Orchestration traces (arXiv 2605.02801), as `orgthink export traces` and other programs write them, as episodes.

The agents, times, tokens, forks, joins, costs and the grade of an exported episode come back; digests stand for texts.
Of other programs' traces it reads agents, forks, decisions and ends: their agents have no joins.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Any

from orgthink.export.orchestration import ENDS, FORKS, Event
from orgthink.record.episode import (
    CancelSource,
    Edge,
    EdgeKind,
    Episode,
    Grade,
    Origin,
    Problem,
    Span,
    Status,
    StopReason,
    Trace,
)
from orgthink.record.episode_json import dump, load
from orgthink.util.errors import UserError
from orgthink.util.tabular import json_object, read_rows
from orgthink.util.terminal import reason


def read_traces(source: Path) -> Iterator[Episode]:
    """The episodes of a `.json` file with one document, or of JSON lines. UserError for anything else."""
    documents = [json_object(source)] if source.suffix == ".json" else read_rows(source, ())
    first = dict[str, int]()
    for number, document in enumerate(documents, 1):
        try:
            episode = episode_of(document)
        except ValueError as error:
            raise UserError(f"{source}, document {number}: {error}") from error
        if (before := first.setdefault(episode.id, number)) != number:
            raise UserError(f"{source}, document {number}: its trace_id repeats document {before}: rename one of them")
        yield episode


def episode_of(document: Any) -> Episode:
    """The episode of a document. ValueError, in one line, if it is none of the schema."""
    try:
        return load(dump(_episode(document)))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ValueError(f"not an orchestration trace: {type(error).__name__}: {reason(error)}") from error


def _episode(document: Mapping[str, Any]) -> Episode:
    events, metrics = document["events"], document.get("metrics", {})
    forked = {event.get("to", event["id"]): event for event in events if event["type"] in FORKS}
    root = next((event["agent"] for event in events if event["agent"] not in forked), None)
    if root is None:
        raise ValueError("no agent has an event and was not forked")
    over = {event["agent"]: event for event in events if event["type"] in ENDS}
    over[root] = next((event for event in events if event["type"] == "aggregate" and "from" not in event), {})
    own = defaultdict[str, list[Event]](list)
    for event in events:
        own[event["agent"]].append(event)
    names = sorted(
        dict.fromkeys([root, *forked]), key=lambda name: (name != root, over.get(name, {}).get("number", inf))
    )
    correct = metrics.get("solutions_correct", metrics.get("task_success"))
    return Episode(
        str(document["trace_id"]),
        Problem(str(document["task_id"]), "orchestration", str(document["task_id"])),
        str(document.get("system", "unknown")),
        int(metrics.get("capacity", max(2, len(names)))),
        tuple(_trace(name, own[name], forked.get(name), over.get(name, {})) for name in names),
        int(metrics.get("sample", 0)),
        over[root].get("content_ref"),
        grade=None if correct is None else Grade(int(correct), int(metrics.get("solutions_required", 1))),
        stop=StopReason(over[root].get("outcome", "done")),
        seconds=float(document["costs"]["wall_clock_s"]),
    )


def _trace(name: str, events: list[Event], forked: Event | None, over: Event) -> Trace:
    """An agent by its events, by the one that forked it, and by the one that ended it, if there is one."""
    own = sorted(events, key=lambda event: event.get("index", 0))
    start = 0.0 if forked is None else float(forked["t"])
    spans = [
        Span(
            Origin.SAMPLED,
            str(e.get("content_ref", "")),
            int(e.get("tokens", 0)),
            start=float(e["t"]),
            end=e.get("end"),
        )
        for e in own
        if e["type"] == "orchestrator_decision"
    ]
    edges = [
        Edge(EdgeKind.FORK, str(e.get("key", e["id"])), e.get("to", e["id"]), int(e.get("at", 0)))
        if e["type"] in FORKS
        else Edge(EdgeKind.JOIN, str(e.get("key", e["id"])), e["from"], int(e.get("at", 0)))
        for e in own
        if e["type"] in FORKS or (e["type"] == "aggregate" and "from" in e)
    ]
    tool = forked is not None and forked["type"] == "tool_call"
    return Trace(
        name,
        str((forked or over).get("tool" if tool else "role", name)),
        None if forked is None else forked["agent"],
        tuple(spans or [Span(Origin.SAMPLED, "", int(over.get("tokens", 0)))]),
        tuple(edges),
        StopReason(over.get("stop", "done")),
        Status(over.get("status", "ok")),
        over.get("content_ref"),
        CancelSource(over["cancel"]) if "cancel" in over else None,
        model=over.get("model", None if tool or "number" in over else "unknown"),
        start=start,
        end=float(over.get("t", start)),
    )
