"""Orchestration traces: each document is of the public schema, and comes back as it was."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from timed_episodes import TEXT, timed_episodes

from orgthink.cli import main
from orgthink.export.orchestration import trace_of
from orgthink.measure.latency import concurrency, critical_path
from orgthink.measure.usage import sampled_tokens
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
from orgthink.record.folder import RunFolder

episode_of = pytest.importorskip("orgthink_arena.orchestration").episode_of

WORD = {"type": "string", "minLength": 1}
AMOUNT = {"type": "number", "minimum": 0}
NUMBERS = {"type": "object", "additionalProperties": {"type": "number"}}
EVENTS = "orchestrator_decision spawn despawn message tool_call tool_result return aggregate human_intervention"
EDGES = "temporal causal spawn message tool_dependency return aggregate safety_flow"
TOPOLOGIES = "centralized planner_executor_critic debate swarm hierarchical harness mixed unknown"


def closed(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    properties = required | (optional or {})
    return {"type": "object", "required": [*required], "additionalProperties": False, "properties": properties}


EVENT = {
    "type": "object",
    "required": ["id", "t", "type", "agent"],
    "properties": {"id": WORD, "t": AMOUNT, "type": {"enum": [*EVENTS.split(), "safety_event"]}, "agent": WORD}
    | {name: {"type": "string"} for name in ("role", "from", "to", "tool", "content_ref")}
    | {"trusted": {"type": "boolean"}},
}
EDGE = closed({"src": WORD, "dst": WORD, "type": {"enum": EDGES.split()}})
COSTS = {
    **NUMBERS,
    "required": ["tokens", "wall_clock_s"],
    "properties": dict.fromkeys(("tokens", "wall_clock_s", "tool_calls", "messages"), AMOUNT),
}
SCHEMA = closed(
    {
        "trace_id": WORD,
        "task_id": WORD,
        "events": {"type": "array", "minItems": 1, "items": EVENT},
        "edges": {"type": "array", "items": EDGE},
        "rewards": NUMBERS,
        "costs": COSTS,
    },
    {"system": {"type": "string"}, "topology": {"enum": TOPOLOGIES.split()}, "metrics": NUMBERS},
)
"""What the published `trace_schema.json` (commit 1b2ec612) requires, in our words."""


def require_valid(document: dict[str, Any]) -> None:
    """The schema, and what its published validator adds: ids are unique, and edges refer to events."""
    Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(document, allow_nan=False)))
    ids = [event["id"] for event in document["events"]]
    assert len(set(ids)) == len(ids)
    for edge in document["edges"]:
        assert {edge["src"], edge["dst"]} <= set(ids)


@given(timed_episodes())
def test_a_document_is_valid_and_comes_back_as_it_was(episode: Episode):
    document = trace_of(episode)
    require_valid(document)
    text = json.dumps(document)
    assert TEXT not in text
    again = episode_of(json.loads(text))
    assert trace_of(again) == document
    assert [trace.agent for trace in again.traces] == [trace.agent for trace in episode.traces]
    for one, other in zip(again.traces, episode.traces, strict=True):
        assert (one.parent, one.role, one.edges, one.steps) == (other.parent, other.role, other.edges, other.steps)
        assert (one.stop, one.status, one.cancel, one.model) == (other.stop, other.status, other.cancel, other.model)
    assert (again.id, again.grade, again.stop) == (episode.id, episode.grade, episode.stop)
    assert critical_path(again) == critical_path(episode) and sampled_tokens(again) == sampled_tokens(episode)


@given(timed_episodes())
def test_events_are_in_order_of_time_and_a_join_follows_its_child(episode: Episode):
    document = trace_of(episode)
    times = {event["id"]: event["t"] for event in document["events"]}
    assert list(times.values()) == sorted(times.values())
    kinds = {event["id"]: event for event in document["events"]}
    joins = [edge for edge in document["edges"] if edge["type"] == "return"]
    assert len(joins) == sum(len(trace.joins) for trace in episode.traces)
    for edge in joins:
        assert times[edge["src"]] <= times[edge["dst"]]
        assert kinds[edge["src"]]["agent"] == kinds[edge["dst"]]["from"]
    forks = [edge for edge in document["edges"] if edge["type"] in ("spawn", "tool_dependency")]
    assert len(forks) == len(episode.traces) - 1


def known() -> Episode:
    """An organizer, a worker that it joins, which calls a tool, and a worker that it cancels."""
    fork, join, said = EdgeKind.FORK, EdgeKind.JOIN, Origin.SAMPLED
    prompt, told = Span(Origin.PROMPT, "q", 3), Span(Origin.INJECTED, "r", 2)
    root = Trace(
        "o", "organizer", None,
        (prompt, Span(said, "a", 4, start=-0.5, end=4.0), told, Span(said, "\ud800", 2, start=6.0, end=7.0)),
        (Edge(fork, "1", "o/1", 2), Edge(fork, "2", "o/2", 3), Edge(join, "1", "o/1", 4)), model="m", end=7.0,
    )  # fmt: skip
    worker = Trace(
        "o/1", "worker", "o", (prompt, Span(said, "b", 2, start=2.5, end=4.5), told),
        (Edge(fork, "t", "o/1/t", 1), Edge(join, "t", "o/1/t", 2)),
        returned="r", model="m", start=2.0, end=5.0,
    )  # fmt: skip
    tool = Trace("o/1/t", "python", "o/1", (), returned="6", start=3.0, end=4.0)
    other = Trace(
        "o/2", "worker", "o", (prompt, Span(said, "c", 3)), stop=StopReason.CANCELLED, status=Status.CANCELLED,
        cancel=CancelSource.PARENT, model="m", start=3.0, end=7.0,
    )  # fmt: skip
    return Episode(
        "e",
        Problem("p", "t", "q"),
        "asyncthink",
        3,
        (root, worker, tool, other),
        2,
        answer="5",
        grade=Grade(1, 4),
        seconds=8.0,
    )


def test_what_a_document_says():
    episode = known()
    document = trace_of(episode)
    require_valid(document)
    found = [tuple(map(event.get, ("t", "type", "agent", "to", "trusted"))) for event in document["events"]]
    assert found == [
        (0.0, "orchestrator_decision", "o", None, None),
        (2.0, "spawn", "o", "o/1", None),
        (2.5, "orchestrator_decision", "o/1", None, None),
        (3.0, "spawn", "o", "o/2", None),
        (3.0, "tool_call", "o/1", "o/1/t", None),
        (4.0, "tool_result", "o/1/t", "o/1", False),
        (4.5, "aggregate", "o/1", None, None),
        (5.0, "return", "o/1", "o", None),
        (5.0, "aggregate", "o", None, None),
        (6.0, "orchestrator_decision", "o", None, None),
        (7.0, "despawn", "o/2", "o", None),
        (8.0, "aggregate", "o", None, None),
    ]  # fmt: skip
    ids = {event["id"]: event["agent"] for event in document["events"]}
    assert [(ids[e["src"]], ids[e["dst"]], e["type"]) for e in document["edges"] if e["type"] != "temporal"] == [
        ("o", "o/1", "spawn"), ("o/1", "o/1/t", "tool_dependency"), ("o/1/t", "o/1", "return"),
        ("o/1", "o", "return"), ("o", "o/2", "spawn"),
    ]  # fmt: skip
    assert sum(edge["type"] == "temporal" for edge in document["edges"]) == 5 + 3
    assert (document["topology"], document["rewards"]) == ("hierarchical", {"team": 0.25})
    assert document["costs"] == {"tokens": 11, "wall_clock_s": 8.0, "tool_calls": 1}
    assert document["metrics"] == {
        "task_success": 0.0, "solutions_correct": 1, "solutions_required": 4, "capacity": 3, "sample": 2,
        "critical_path_steps": critical_path(episode), "parallelism_efficiency": concurrency(episode),
    }  # fmt: skip
    again = episode_of(document)
    assert [(span.start, span.end) for span in again.root.spans] == [(0.0, 4.0), (6.0, 7.0)]
    assert [(trace.start, trace.end) for trace in again.traces] == [(0.0, 8.0), (2.0, 5.0), (3.0, 4.0), (3.0, 7.0)]
    cut = episode_of(document | {"events": document["events"][:-1]})
    assert (cut.root.agent, cut.answer) == ("o", None), "a trace may end before its answer"
    ungraded = trace_of(replace(episode, grade=None, traces=(replace(episode.root, edges=()),)))
    assert (ungraded["rewards"], ungraded["topology"]) == ({}, "unknown") and "task_success" not in ungraded["metrics"]
    assert (again.capacity, again.sample, again.grade) == (3, 2, Grade(1, 4))
    two = (replace(worker, edges=(), parent="o") for worker in episode.traces[1:2])
    assert (
        trace_of(replace(episode, traces=(replace(episode.root, edges=episode.root.edges[::2]), *two)))["topology"]
        == "centralized"
    )


FOREIGN = {
    "trace_id": "demo",
    "task_id": "research",
    "events": [
        {"id": "a", "t": 0, "type": "orchestrator_decision", "agent": "lead"},
        {"id": "b", "t": 1, "type": "spawn", "agent": "lead", "role": "reader", "to": "reader_1"},
        {"id": "c", "t": 2, "type": "tool_call", "agent": "reader_1", "tool": "search", "content_ref": "x"},
        {"id": "d", "t": 3, "type": "tool_result", "agent": "search", "tool": "search", "trusted": False},
        {"id": "e", "t": 4, "type": "return", "agent": "reader_1", "from": "reader_1", "to": "lead"},
        {"id": "f", "t": 5, "type": "aggregate", "agent": "lead", "content_ref": "answer"},
    ],
    "edges": [{"src": "a", "dst": "b", "type": "spawn"}],
    "rewards": {"team": 1.0},
    "costs": {"tokens": 12000, "wall_clock_s": 42},
    "metrics": {"task_success": 1},
}


def test_a_trace_of_another_program_is_read():
    require_valid(FOREIGN)
    episode = episode_of(FOREIGN)
    assert [(t.agent, t.parent, t.role, t.is_code) for t in episode.traces] == [
        ("lead", None, "lead", False),
        ("reader_1", "lead", "reader", False),
        ("c", "reader_1", "search", True),
    ]
    assert episode.capacity == 3, "all of its agents may be at work at once"
    assert episode.answer == "answer" and episode.seconds == 42 and episode.grade and episode.grade.all_correct
    require_valid(trace_of(episode))


@given(st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=2)))
def test_anything_else_is_one_line(wrong: Any):
    for name in ("events", "costs", "metrics", "trace_id"):
        document = FOREIGN | {name: wrong}
        try:
            episode_of(document)
        except ValueError as error:
            assert str(error).startswith("not an orchestration trace: ") and "\n" not in str(error)


@pytest.mark.parametrize("number", ["Infinity", "-Infinity", "1" + "0" * 400, '"x"', "[]"])
def test_a_number_that_is_none_is_one_line(number: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    source = tmp_path / "traces.jsonl"
    for place in ('"wall_clock_s": 42', '"t": 1', '"tokens": 12000'):
        document = json.dumps(FOREIGN | {"metrics": {"capacity": 77}}).replace("77", number, place == '"tokens": 12000')
        source.write_text(document.replace(place, f"{place.split(':')[0]}: {number}", 1) + "\n")
        assert main(["import", str(source), "--format", "orchestration", "--out", str(tmp_path / "x")]) == 2
        seen = capsys.readouterr().err
        assert "document 1: not an orchestration trace: " in seen and seen.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_a_value_of_a_wrong_type_is_one_line(tmp_path: Path, recwarn: pytest.WarningsRecorder):
    event = {"id": "e", "t": 0, "type": "aggregate", "agent": "lead", "model": 5}
    for answer in ("x", "\ud800"):
        with pytest.raises(ValueError, match="not an orchestration trace"):
            episode_of(FOREIGN | {"events": [event | {"content_ref": answer}]})
    assert not recwarn.list


@pytest.mark.parametrize(
    "more",
    [
        {"metrics": {"sample": -1}},
        {"metrics": {"solutions_correct": -1}},
        {"metrics": {"capacity": -1}},
        {"costs": {"tokens": 1, "wall_clock_s": -1}},
        {"events": [{"id": "s", "t": 0, "type": "spawn", "agent": "lead", "to": "a", "at": -1}]},
        {"events": [{"id": "d", "t": 0, "type": "orchestrator_decision", "agent": "lead", "tokens": -1}]},
    ],
    ids=str,
)
def test_a_count_below_0_is_refused(more: dict[str, Any]):
    with pytest.raises(ValueError, match=r"below 0|below 1|fewer than 0"):
        episode_of(FOREIGN | more)


def test_documents_of_one_id_make_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    source = tmp_path / "traces.jsonl"
    source.write_text(2 * (json.dumps(FOREIGN) + "\n"))
    assert main(["import", str(source), "--format", "orchestration", "--out", str(tmp_path / "x")]) == 2
    assert "document 2: its trace_id repeats document 1" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_the_events_of_many_agents_are_read_once():
    class Counted(dict[str, Any]):
        read = 0

        def __getitem__(self, name: str) -> Any:
            Counted.read += 1
            return super().__getitem__(name)

    events = [Counted(id=f"s{i}", t=i, type="spawn", agent="lead", to=f"a{i}") for i in range(300)]
    assert len(episode_of(FOREIGN | {"events": [*events, *FOREIGN["events"][-1:]]}).traces) == 301
    assert Counted.read < 30 * len(events)


def test_a_run_is_exported_and_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    episodes = [timed for seed in range(3) if (timed := _episode(seed))]
    with RunFolder.create(tmp_path / "run", "serve", {}).journal() as journal:
        journal.append(*episodes)
    file = tmp_path / "traces.jsonl"
    assert main(["export", "traces", str(tmp_path / "run"), "--out", str(file)]) == 0
    assert main(["import", str(file), "--format", "orchestration", "--out", str(tmp_path / "again")]) == 0
    assert capsys.readouterr().out.count("3 ") == 2
    again = list(RunFolder.open(tmp_path / "again").episodes())
    assert [trace_of(one) for one in again] == [json.loads(line) for line in file.read_text().splitlines()]
    assert main(["measure", str(tmp_path / "again")]) == 0
    (tmp_path / "one.json").write_text(json.dumps(FOREIGN, indent=2))
    assert (
        main(["import", str(tmp_path / "one.json"), "--format", "orchestration", "--out", str(tmp_path / "one")]) == 0
    )
    (tmp_path / "bad.json").write_text('{"events": []}')
    assert main(["import", str(tmp_path / "bad.json"), "--format", "orchestration", "--out", str(tmp_path / "x")]) == 2
    seen = capsys.readouterr().err
    assert (
        "bad.json, document 1: not an orchestration trace: ValueError: no agent has an event" in seen
        and seen.count("\n") == 1
    )


def _episode(seed: int) -> Episode:
    import random

    from random_episodes import random_program
    from timed_episodes import _dressed

    return _dressed(random_program(random.Random(seed)), seed)
