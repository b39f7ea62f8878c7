"""What people do is in no number of models: laws over random episodes, and their seconds counted a second time."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from longest_path import longest_path
from random_episodes import Program, episode_of, programs

from orgthink.measure.latency import concurrency, critical_path
from orgthink.measure.orchestration import cost
from orgthink.measure.usage import forks, replies, sampled_tokens, usage
from orgthink.record.episode import (
    Episode,
    Origin,
    Span,
    Trace,
)

MEASURES = (critical_path, longest_path, concurrency, sampled_tokens, replies, forks, cost)


def staffed(episode: Episode, rng: random.Random, tokens: int = 0) -> Episode:
    """The same, where some agents are people who write so many tokens more. Their forks and joins take no steps."""

    def person(trace: Trace) -> Trace:
        spans = (
            Span(Origin.PROMPT, "p", 5),
            Span(Origin.WRITTEN, "w", trace.steps + tokens),
            Span(Origin.INJECTED, "i", 3),
        )
        edges = tuple(replace(edge, at=0) for edge in trace.edges)
        return replace(trace, spans=spans, edges=edges, person="ann", turns=4)

    traces = tuple(
        person(t) if rng.random() < 0.5 else replace(t, model="m", turns=1, cost=1.0) for t in episode.traces
    )
    return replace(episode, traces=traces)


@given(programs(), st.integers(), st.integers(0, 1000))
def test_how_much_people_write_changes_no_number_of_models(program: Program, seed: int, tokens: int) -> None:
    episode = episode_of(program)
    few, many = (staffed(episode, random.Random(seed), more) for more in (0, tokens))
    assert [measure(few) for measure in MEASURES] == [measure(many) for measure in MEASURES]
    assert critical_path(many) == longest_path(many)
    silent = replace(many, traces=tuple(replace(t, spans=(), turns=0) if t.person else t for t in many.traces))
    assert [measure(silent) for measure in MEASURES] == [measure(many) for measure in MEASURES], (
        "as if they had said none"
    )
    assert _of_models(few) == _of_models(many) == _of_models(silent)


def _of_models(episode: Episode) -> list[list[object]]:
    """What the roles used, without who had them and for how long."""
    mine = ("prompt_tokens", "sampled_tokens", "injected_tokens", "calls", "critical_steps", "cost")
    return [[getattr(row, name) for name in mine] for row in usage([episode])]
