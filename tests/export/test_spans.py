"""The spans of an episode form one tree with every fork, join, call and stretch of decoding."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace

import pytest
import sample
from hypothesis import given, settings
from random_episodes import Join, random_program, script_of
from timed_episodes import TEXT, timed_episodes

pytest.importorskip("opentelemetry.sdk")
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind

from orgthink.export.spans import LATEST, trace_spans
from orgthink.measure.latency import critical_path
from orgthink.record.episode import Episode, Origin

BEGAN = 1_790_000_000.0


def own_id(span: ReadableSpan) -> int:
    return span.context.span_id


def parent_id(span: ReadableSpan) -> int | None:
    return span.parent and span.parent.span_id


def linked(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def agents(spans: list[ReadableSpan]) -> dict[str, ReadableSpan]:
    """The span of each agent, or of the call of a tool, by the agent's name."""
    found: dict[str, ReadableSpan] = {}
    for span in spans:
        says = span.attributes
        if says["gen_ai.operation.name"] in ("invoke_agent", "execute_tool") and "orgthink.child" not in says:
            found[str(says["orgthink.agent"])] = span
    return found


def check(episode: Episode, spans: list[ReadableSpan]) -> None:
    """Everything that holds for the spans of any episode."""
    by_id = {own_id(span): span for span in spans}
    assert len(by_id) == len(spans) and len({span.context.trace_id for span in spans}) == 1
    assert spans[0].name == f"invoke_workflow {episode.organization}"
    assert [span for span in spans if span.parent is None] == spans[:1]
    seen: set[int] = set()
    for span in spans:
        assert span.parent is None or parent_id(span) in seen, "parents come first"
        seen.add(own_id(span))
        around = span if span.parent is None else by_id[parent_id(span)]
        assert 0 <= around.start_time <= span.start_time <= span.end_time <= around.end_time <= LATEST
        assert (not span.status.is_unset) == ("error.type" in span.attributes)
    check_forks(episode, spans)
    check_joins_and_chats(episode, spans)
    joins = sum(len(trace.joins) for trace in episode.traces)
    assert len(spans) == 1 + len(episode.traces) + joins + len(decoded(episode))


def decoded(episode: Episode) -> list[tuple[str, int]]:
    """Agent and tokens of every stretch of decoding."""
    spans = [(t.agent, s) for t in episode.traces for s in t.spans if s.origin is Origin.SAMPLED and s.tokens]
    return [(agent, span.tokens) for agent, span in spans]


def check_forks(episode: Episode, spans: list[ReadableSpan]) -> None:
    own = agents(spans)
    assert own.keys() == {trace.agent for trace in episode.traces}
    assert parent_id(own[episode.root.agent]) == own_id(spans[0])
    for trace in episode.traces:
        for fork in trace.forks:
            child, called = episode.trace(fork.child), own[fork.child]
            assert called.name == f"{'execute_tool' if child.model is None else 'invoke_agent'} {child.role}"
            assert parent_id(called) == own_id(own[trace.agent]), "the forking agent is the parent"
            assert called.attributes["orgthink.key"] == fork.key


def check_joins_and_chats(episode: Episode, spans: list[ReadableSpan]) -> None:
    own = agents(spans)
    joins = [span for span in spans if span.name == "execute_tool join"]
    for span, (trace, edge) in zip(joins, ((t, e) for t in episode.traces for e in t.joins), strict=True):
        assert (parent_id(span), linked(span)) == (own_id(own[trace.agent]), [own_id(own[edge.child])])
        assert span.end_time >= round(1e9 * BEGAN) + round(1e9 * episode.trace(edge.child).end), (
            "it waits for the child"
        )
    assert not any(span.links for span in spans if span not in joins)
    chats = [span for span in spans if span.kind is SpanKind.CLIENT]
    names = {own_id(span): agent for agent, span in own.items()}
    found = [(names[parent_id(span)], span.attributes["gen_ai.usage.output_tokens"]) for span in chats]
    assert Counter(found) == Counter(decoded(episode))


@given(timed_episodes())
def test_the_spans_of_any_episode_are_a_tree(episode: Episode) -> None:
    spans = trace_spans(episode, began=BEGAN)
    check(episode, spans)
    assert [span.to_json() for span in spans] == [span.to_json() for span in trace_spans(episode, began=BEGAN)]
    other = trace_spans(episode, run="another", began=BEGAN)
    assert not {*map(own_id, spans)} & {*map(own_id, other)}


@given(timed_episodes())
@settings(max_examples=15)
def test_texts_are_there_only_if_they_are_asked_for(episode: Episode) -> None:
    for content in (False, True):
        spans = trace_spans(replace(episode, id="e"), content=content)
        stops = "gen_ai.request.stop_sequences"
        assert any(stops in span.attributes for span in spans) == bool(decoded(episode)), "a setting, not a text"
        kept = [{name: value for name, value in span.attributes.items() if name != stops} for span in spans]
        shown = [kept, [[span.status.description, span.name] for span in spans]]
        assert (TEXT in json.dumps(shown)) == content


def test_the_spans_of_random_programs() -> None:
    rng = random.Random(5)
    programs = [(*random_program(rng), Join("1"), Join("2")) for _ in range(8)]
    for script in [script_of(program, rng) for program in programs]:
        episode = sample.run(sample.AsyncThink(), script, capacity=99, depth=2, max_tokens=10_000)
        check(episode, trace_spans(episode, began=BEGAN))


@pytest.mark.parametrize("episode", sample.episodes(rounds=1), ids=lambda episode: episode.organization)
def test_the_spans_of_the_sample_episodes(episode: Episode) -> None:
    check(episode, trace_spans(episode, began=BEGAN))


def test_the_times_are_those_of_the_record() -> None:
    episode = sample.asyncthink()
    spans = {(span.name, span.attributes.get("orgthink.agent")): span for span in trace_spans(episode, began=BEGAN)}
    zero = round(1e9 * BEGAN)
    worker = episode.trace("organizer/1")
    span = spans["invoke_agent worker", "organizer/1"]
    assert (span.start_time - zero, span.end_time - zero) == (round(1e9 * worker.start), round(1e9 * worker.end))
    chat = spans["chat scripted-1", "organizer/1"]
    sampled = worker.spans[1]
    assert sampled.start is not None and sampled.end is not None
    assert (chat.start_time - zero, chat.end_time - zero) == (round(1e9 * sampled.start), round(1e9 * sampled.end))


def test_what_the_spans_say() -> None:
    episode = sample.asyncthink()
    root, organizer, *others = trace_spans(episode, run="mine", began=BEGAN)
    says = root.attributes
    assert says["orgthink.critical_path"] == critical_path(episode)
    assert (says["orgthink.run"], says["gen_ai.conversation.id"]) == ("mine", episode.id)
    assert (says["orgthink.correct"], says["orgthink.required"], says["orgthink.score"]) == (4, 4, 1.0)
    critical = [one.attributes.get("orgthink.critical_steps", 0) for one in (organizer, *others)]
    assert sum(critical) == critical_path(episode)
    first = others[0].attributes
    assert first["gen_ai.usage.input_tokens"] == episode.root.spans[0].tokens
    assert first["gen_ai.response.finish_reasons"] == ("stop",) and first["gen_ai.request.temperature"] == 0.0


def test_a_request_has_the_texts_since_the_one_before() -> None:
    episode = sample.asyncthink()
    organizer = agents(spans := trace_spans(episode, content=True))["organizer"]
    chats = [span.attributes for span in spans if span.kind is SpanKind.CLIENT and parent_id(span) == own_id(organizer)]
    read = [json.loads(str(chat["gen_ai.input.messages"])) for chat in chats]
    given = [span.text for span in episode.root.spans if span.origin is not Origin.SAMPLED]
    assert [[message["parts"][0]["content"] for message in messages] for messages in read] == [[text] for text in given]
    tokens = [span.tokens for span in episode.root.spans]
    assert [chat["gen_ai.usage.input_tokens"] for chat in chats] == [sum(tokens[:end]) for end in (1, 3, 5)]


def test_failed_agents_have_an_error() -> None:
    spans = agents(trace_spans(sample.errored()))
    failed = {agent: span.attributes.get("error.type") for agent, span in spans.items()}
    assert failed == {"organizer": None, "organizer/1": "engine", "organizer/2": "timeout"}
    with_text = agents(trace_spans(sample.errored(), content=True))
    assert with_text["organizer/1"].status.description == "connection reset by peer"
    assert spans["organizer/1"].status.description is None


def test_numbers_of_tokens_that_are_estimates_are_left_out() -> None:
    episode = sample.asyncthink()
    traces = tuple(
        replace(trace, spans=tuple(replace(span, token_ids=None) for span in trace.spans)) for trace in episode.traces
    )
    chats = [span for span in trace_spans(replace(episode, traces=traces)) if span.kind is SpanKind.CLIENT]
    assert chats and not any("gen_ai.usage.input_tokens" in span.attributes for span in chats)


def test_times_before_1970_and_after_the_last_second_still_nest() -> None:
    episode = sample.asyncthink()
    for began in (-1e12, 1e12):
        check_order = trace_spans(replace(episode, seconds=1e12), began=began)
        assert all(0 <= span.start_time <= span.end_time <= LATEST for span in check_order)
