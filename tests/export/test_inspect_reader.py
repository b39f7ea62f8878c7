"""Inspect's own reader opens the `.eval` file and finds every agent, fork and request in it (`make test-clients`)."""

from __future__ import annotations

from pathlib import Path

import pytest
import sample
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from timed_episodes import timed_episodes

from orgthink.export.inspect_log import eval_log
from orgthink.export.spans import trace_spans
from orgthink.record.episode import Episode, Origin

pytestmark = pytest.mark.clients


def check(episodes: list[Episode], file: Path) -> None:
    """Write the episodes, read them with Inspect, compare."""
    from inspect_ai.log import read_eval_log, read_eval_log_sample_summaries

    file.write_bytes(eval_log(((episode, 1e9) for episode in episodes), "mine"))
    log = read_eval_log(str(file), resolve_attachments=True)
    assert log.status == "success" and log.samples is not None
    assert len(read_eval_log_sample_summaries(str(file))) == len(log.samples) == len(episodes)
    by_id = {one.metadata["episode"]: one for one in log.samples}
    for episode in episodes:
        check_sample(by_id[episode.id], episode)


def check_sample(found, episode: Episode) -> None:
    from inspect_ai.event import ModelEvent, SpanBeginEvent, ToolEvent, timeline_build

    spans = {event.id: event for event in found.events if isinstance(event, SpanBeginEvent)}
    agents = {span.name: span for span in spans.values() if span.type == "agent"}
    assert agents.keys() == {trace.agent for trace in episode.traces if trace.parent is None or trace.model is not None}
    calls = {event.id: event for event in found.events if isinstance(event, ToolEvent)}
    assert calls.keys() == {fork.child for trace in episode.traces for fork in trace.forks}
    for trace in episode.traces[1:]:
        call = calls[trace.agent]
        if trace.model is not None:
            assert call.agent_span_id == agents[trace.agent].id and call.span_id == agents[trace.agent].parent_id
        forker = spans[call.span_id]
        assert trace.parent == (forker.name if forker.type == "agent" else forker_of(forker, calls))
    owners = {name: span.id for name, span in agents.items()} | {
        name: call.agent_span_id for name, call in calls.items() if name not in agents
    }
    requests = [event for event in found.events if isinstance(event, ModelEvent)]
    sampled = sum(span.kind == "client" for span in trace_spans(episode))
    assert len(requests) == sampled and sum(e.output.usage.output_tokens for e in requests) == sum(
        trace.steps for trace in episode.traces
    )
    for trace in episode.traces:
        texts = [span.text for span in trace.spans]
        own = [event for event in requests if event.span_id == owners[trace.agent]]
        ends = [i for i, span in enumerate(trace.spans) if span.origin is Origin.SAMPLED and span.tokens]
        for event, end in zip(sorted(own, key=lambda event: len(event.input)), ends, strict=True):
            assert [message.text for message in event.input] == texts[:end] and event.output.completion == texts[end]
    assert timeline_build(found.events).root is not None
    assert (found.scores or {}).keys() == ({episode.organization} if episode.grade else set())


def forker_of(span, calls) -> str:
    """The agent of a tool's span."""
    (name,) = (name for name, call in calls.items() if call.agent_span_id == span.id)
    return name


def test_inspect_reads_the_sample_episodes(tmp_path: Path) -> None:
    check(sample.episodes(rounds=2), tmp_path / "run.eval")


@given(st.lists(timed_episodes(), min_size=1, max_size=3, unique_by=lambda episode: episode.id))
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_inspect_reads_any_episodes(tmp_path: Path, episodes: list[Episode]) -> None:
    check(episodes, tmp_path / "run.eval")
