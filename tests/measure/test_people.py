"""What people do is in no number of models: laws over random episodes, and their seconds counted a second time."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_episodes import Program, episode_of, programs

from orgthink.measure.concurrency import concurrency
from orgthink.measure.latency import critical_path, longest_path
from orgthink.measure.orchestration import cost
from orgthink.measure.people import model_seconds, people_seconds, waits_for_people, with_people
from orgthink.measure.summary import summarise
from orgthink.measure.usage import forks, replies, sampled_tokens, usage
from orgthink.record.episode import (
    CONTROLLER,
    Approval,
    Decision,
    Edge,
    EdgeKind,
    Episode,
    Origin,
    Problem,
    Span,
    Trace,
)
from orgthink.record.episode_json import dump, load

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


@given(programs())
def test_episodes_without_people_are_measured_as_before(program: Program) -> None:
    episode = replace(episode_of(program), seconds=12.5)
    assert (people_seconds(episode), model_seconds(episode), with_people(episode)) == (0, 12.5, False)
    assert all(row.people == 0 for row in usage([episode]))
    assert "people_seconds" not in next(iter(summarise([episode]).values()))


TIMES = st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted)


@st.composite
def timed(draw: st.DrawFn) -> Episode:
    """A controller over people, models that decode in stretches, tools, and calls that waited for an approval."""
    traces = []
    for i in range(draw(st.integers(0, 6))):
        start, end = draw(TIMES)
        trace = Trace(f"c/{i}", draw(st.sampled_from("ab")), CONTROLLER, (), start=start, end=end)
        match draw(st.sampled_from(("person", "model", "tool", "approved", "denied"))):
            case "person":
                trace = replace(trace, person="ann")
            case "model":
                stretches = draw(st.lists(TIMES, max_size=3))
                spans = tuple(Span(Origin.SAMPLED, "", 1, start=a, end=b) for a, b in stretches)
                trace = replace(trace, model="m", spans=spans)
            case "approved":
                asked = draw(st.integers(0, start))
                trace = replace(trace, approval=Approval(Decision.ALLOWED, {}, start=asked, end=start))
            case "denied":
                trace = replace(trace, approval=Approval(Decision.DENIED, {}, start=start, end=end))
        traces.append(trace)
    edges = tuple(Edge(EdgeKind.FORK, str(i), trace.agent, 0) for i, trace in enumerate(traces))
    root = Trace(CONTROLLER, CONTROLLER, None, (), edges, end=20)
    return Episode("e", Problem("p", "t", ""), "o", 9, (root, *traces), seconds=20.0)


def waited(episode: Episode, second: int) -> bool:
    """Whether people alone were waited for, in this second."""
    moment = second + 0.5
    people = work = False
    for trace in episode.traces[1:]:
        alive = trace.start < moment < trace.end
        asked = trace.approval is not None and trace.approval.start < moment < trace.approval.end
        people |= asked or (alive and trace.person is not None)
        if trace.model is not None:
            work |= any(span.start < moment < span.end for span in trace.spans)  # type: ignore[operator]
        elif trace.person is None:
            work |= alive and not asked
    return people and not work


@given(timed())
def test_seconds_of_people_are_those_in_which_nothing_else_went_on(episode: Episode) -> None:
    seconds = [second for second in range(20) if waited(episode, second)]
    assert people_seconds(episode) == len(seconds)
    assert model_seconds(episode) + people_seconds(episode) == episode.seconds
    intervals = waits_for_people(episode)
    assert intervals == sorted(intervals) and all(start < end for start, end in intervals)
    load(dump(episode))


@given(timed())
def test_seconds_of_a_role_and_those_of_its_people_are_the_life_of_its_agents(episode: Episode) -> None:
    for row in usage([episode]):
        lives = sum(trace.end - trace.start for trace in episode.traces if trace.role == row.role)
        assert row.seconds + row.people == pytest.approx(lives)
        assert row.seconds >= -1e-9 and row.people >= 0


def test_code_that_waits_for_a_person_is_not_at_work() -> None:
    """A tool whose thinkers are people, as an ensemble's may be, and a tool that works."""
    fork = (Edge(EdgeKind.FORK, "1", "m/1/1", 0),)
    root = Trace("m", "manager", None, (), (Edge(EdgeKind.FORK, "1", "m/1", 0), Edge(EdgeKind.FORK, "2", "m/2", 0)))
    ensemble = Trace("m/1", "ensemble_solver", "m", (), fork, start=0, end=10)
    program = Trace("m/2", "python", "m", (), start=0, end=3)
    thinker = Trace("m/1/1", "thinker", "m/1", (), person="ann", start=0, end=10)
    episode = Episode("e", Problem("p", "t", ""), "o", 2, (root, ensemble, program, thinker), seconds=10.0)
    assert waits_for_people(episode) == [(3, 10)]


def test_by_hand() -> None:
    """A model decodes for 2 s and asks; the person takes 10 s, in 4 of which a sibling decodes; 1 s to the answer."""
    root = Trace("o", "organizer", None, (
        Span(Origin.SAMPLED, "", 2, start=0, end=2), Span(Origin.SAMPLED, "", 1, start=12, end=13),
    ), (Edge(EdgeKind.FORK, "1", "o/1", 2), Edge(EdgeKind.FORK, "2", "o/2", 2), Edge(EdgeKind.JOIN, "1", "o/1", 2)),
        model="m", end=13)  # fmt: skip
    person = Trace(
        "o/1", "worker", "o", (Span(Origin.WRITTEN, "yes", 1, start=2, end=12),), person="ann", start=2, end=12
    )
    model = Trace("o/2", "worker", "o", (Span(Origin.SAMPLED, "", 4, start=2, end=6),), model="m", start=2, end=6)
    episode = Episode("e", Problem("p", "t", ""), "o", 2, (root, person, model), seconds=13.0)
    assert waits_for_people(episode) == [(6, 12)] and model_seconds(episode) == 7
    organizer, workers = usage([episode])
    assert (organizer.seconds, organizer.people) == (7, 6)
    assert (workers.agents, workers.seconds, workers.people, workers.sampled_tokens) == (2, 4, 10, 4)
    assert (critical_path(episode), concurrency(episode)) == (3, (3 + 1) / 3), "the sibling was never joined"
    summary = summarise([episode])["o"]
    assert (summary["seconds"]["mean"], summary["people_seconds"]["mean"]) == (7, 6)
