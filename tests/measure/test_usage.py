"""The table by role, against an episode counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from random_episodes import Program, episode_of, programs

from orgthink.measure.latency import critical_path
from orgthink.measure.orchestration import cost
from orgthink.measure.usage import forks, replies, sampled_tokens, usage
from orgthink.record.episode import CONTROLLER, Edge, EdgeKind, Episode, Origin, Problem, Span, Trace


def spans(*parts: tuple[Origin, int]) -> tuple[Span, ...]:
    """With ids but where they were sampled, so that their length is known."""
    return tuple(
        Span(origin, "", tokens, None if origin is Origin.SAMPLED else tuple(range(tokens))) for origin, tokens in parts
    )


ORGANIZER = Trace(
    "organizer", "organizer", None,
    spans((Origin.PROMPT, 30), (Origin.SAMPLED, 8), (Origin.INJECTED, 4), (Origin.SAMPLED, 2)),
    edges=(
        Edge(EdgeKind.FORK, "1", "organizer/1", 2),
        Edge(EdgeKind.FORK, "2", "organizer/2", 4),
        Edge(EdgeKind.JOIN, "1", "organizer/1", 8),
    ),
    start=0.0, end=15.0, turns=2, cost=0.5,
)  # fmt: skip
WORKERS = (
    Trace("organizer/1", "worker", "organizer", spans((Origin.PROMPT, 20), (Origin.SAMPLED, 11)), start=2.0, end=13.0,
          turns=1, cost=0.25),
    Trace("organizer/2", "worker", "organizer", spans((Origin.PROMPT, 20), (Origin.SAMPLED, 3)), start=4.0, end=7.0,
          turns=1, cost=0.125),
)  # fmt: skip
EPISODE = Episode("p|asyncthink|0", Problem("p", "t", ""), "asyncthink", 3, (ORGANIZER, *WORKERS))


def test_by_hand() -> None:
    organizer, workers = usage([EPISODE])
    assert (organizer.role, organizer.agents, organizer.calls) == ("organizer", 1, 2)
    assert (organizer.prompt_tokens, organizer.sampled_tokens, organizer.injected_tokens) == (30, 10, 4)
    assert (organizer.seconds, organizer.critical_steps, organizer.cost) == (15.0, 4, 0.5)
    assert organizer.share == pytest.approx(4 / 15)
    assert (workers.role, workers.agents, workers.calls) == ("worker", 2, 2)
    assert (workers.prompt_tokens, workers.sampled_tokens, workers.injected_tokens) == (40, 14, 0)
    assert (workers.seconds, workers.critical_steps, workers.cost) == (14.0, 11, 0.375)
    assert workers.share == pytest.approx(11 / 15)
    assert sampled_tokens(EPISODE) == 24


def test_forks_are_those_that_a_model_decided_on() -> None:
    by_a_model = replace(ORGANIZER, model="small")
    assert forks(replace(EPISODE, traces=(by_a_model, *WORKERS))) == 2
    assert forks(EPISODE) == 0, "code is no model"


def test_several_episodes_add_up() -> None:
    _, workers = usage([EPISODE, EPISODE])
    assert (workers.agents, workers.critical_steps, workers.share) == (4, 22, pytest.approx(11 / 15))


def test_a_cost_that_is_unknown_for_one_is_unknown() -> None:
    episode = replace(EPISODE, traces=(ORGANIZER, WORKERS[0], replace(WORKERS[1], cost=None)))
    assert [row.cost for row in usage([episode])] == [0.5, None]


def test_no_steps_no_share() -> None:
    episode = replace(EPISODE, traces=(Trace(CONTROLLER, CONTROLLER, None, ()),))
    assert [(row.role, row.share, row.cost) for row in usage([episode])] == [(CONTROLLER, None, None)]
    assert usage([]) == []


@given(programs())
def test_shares_cover_the_critical_path(program: Program) -> None:
    episode = episode_of(program)
    assert sum(row.critical_steps for row in usage([episode])) == critical_path(episode)


def test_every_reply_of_every_model_counts_one_the_managers_own_included() -> None:
    """What code does is no reply; four thinkers of an ensemble are four."""
    manager = Trace("manager", "manager", None, (), model="m", turns=3, cost=1.0)
    tool = Trace("manager/1.1", "python", "manager", (), cost=0.0)
    ensemble = Trace("manager/1.2", "ensemble_solver", "manager", (), cost=4.0)
    thinkers = [
        Trace(f"manager/1.2/{i}", "standard_reasoner", ensemble.agent, (), model="a", turns=1, cost=0.0)
        for i in range(4)
    ]
    episode = replace(EPISODE, traces=(manager, tool, ensemble, *thinkers))
    assert (replies(episode), cost(episode)) == (7, 5.0)
