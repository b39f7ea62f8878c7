"""Eq. 1 by hand, in its readings."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_episodes import Fork, Join, Program, Think, episode_of, programs

from orgthink.measure.latency import concurrency, critical_path
from orgthink.record.episode import CONTROLLER, Episode

EXAMPLES: dict[str, tuple[Program, float | None, float | None]] = {
    "nothing is decoded": ((Fork("1", ()), Join("1")), None, None),
    "sequential": ((Think(7),), 1.0, 0.0),
    # 12 steps: the organizer decodes 2 + 5 + 1 of them, the worker 9
    "the organizer waits": ((Think(2), Fork("1", (Think(9),)), Think(5), Join("1"), Think(1)), 17 / 12, 9 / 12),
    # 8 steps, three thinkers of 5, 8 and 2; the root is code
    "parallel": (
        (*(Fork(key, (Think(n),)) for key, n in (("1", 5), ("2", 8), ("3", 2))), Join("1"), Join("2"), Join("3")),
        15 / 8,
        15 / 8,
    ),
    "chain": ((Fork("1", (Think(5),)), Join("1"), Fork("1", (Think(3),)), Join("1")), 1.0, 1.0),
    "never joined, ends before the episode": ((Think(3), Fork("1", (Think(2),)), Think(5)), 10 / 8, 2 / 8),
    "never joined, outlives the episode": ((Think(3), Fork("1", (Think(100),)), Think(5)), 13 / 8, 5 / 8),
    # the worker decodes 1, waits 4, decodes 2: 7 steps of which it works 3 and its own worker 4
    "a worker that waits does not decode": (
        (Think(1), Fork("1", (Think(1), Fork("1", (Think(4),)), Join("1"), Think(2))), Join("1"), Think(1)),
        9 / 9,
        7 / 9,
    ),
}


@pytest.mark.parametrize(("program", "pool", "workers"), EXAMPLES.values(), ids=EXAMPLES)
def test_by_hand(program: Program, pool: float | None, workers: float | None) -> None:
    episode = episode_of(program)
    assert concurrency(episode) == pytest.approx(pool)
    assert concurrency(episode, "workers") == pytest.approx(workers)


@given(programs())
def test_somebody_always_decodes(program: Program) -> None:
    """At every step of the critical path at least one agent is at work, and never more than there are."""
    episode = episode_of(program)
    pool, workers = concurrency(episode), concurrency(episode, "workers")
    if pool is not None and workers is not None:
        assert 1 - 1e-9 <= pool <= len(episode.traces)
        assert 0 <= pool - workers <= 1 + 1e-9


def speaking(program: Program, *silent: str) -> Episode:
    """The record of a program whose agents return something, but for the silent ones."""
    episode = episode_of(program)
    said = (replace(trace, returned="" if trace.agent in silent else "r") for trace in episode.traces)
    return replace(episode, traces=tuple(said))


WORKER = Fork("1", (Think(5),))
INNER = Fork("1", (Think(4),))
JOINED: dict[str, tuple[Program, tuple[str, ...], float | None]] = {
    "nothing is decoded": ((Fork("1", ()), Join("1")), (), None),
    "sequential": ((Think(7),), (), 1.0),
    "joined": ((Think(2), WORKER, Think(5), Join("1"), Think(1)), (), 13 / 8),
    "never joined": ((Think(2), WORKER, Think(6)), (), 8 / 8),
    "joined, but silent": ((Think(2), WORKER, Think(5), Join("1"), Think(1)), ("controller/1#1",), 8 / 8),
    # nobody who counts is at work while the root waits
    "the root waits for a silent one": ((WORKER, Join("1"), Think(1)), ("controller/1#1",), 1 / 6),
    "one of two is joined": ((WORKER, Fork("2", (Think(3),)), Think(5), Join("1"), Think(1)), (), 11 / 6),
    "a key is used again": ((WORKER, Join("1"), WORKER, Think(5)), (), 10 / 10),
    "a worker joins its own": ((Fork("1", (INNER, Think(4), Join("1"))), Think(4), Join("1")), (), 12 / 4),
    "a worker does not join its own": ((Fork("1", (INNER, Think(4))), Think(4), Join("1")), (), 8 / 4),
    "what is joined by one who is not": ((Fork("1", (INNER, Think(4), Join("1"))), Think(4)), (), 4 / 4),
    "what is joined by one who is silent": (
        (Fork("1", (INNER, Think(4), Join("1"))), Think(4), Join("1")), ("controller/1#1",), 4 / 4,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("program", "silent", "eta"), JOINED.values(), ids=JOINED)
def test_joined_by_hand(program: Program, silent: tuple[str, ...], eta: float | None) -> None:
    assert concurrency(speaking(program, *silent), "joined") == pytest.approx(eta)


def test_one_that_is_cut_off_returns_nothing() -> None:
    """`None` and empty text are the same to those who wait."""
    episode = episode_of((WORKER, Think(5), Join("1")))
    assert [trace.returned for trace in episode.traces] == [None, None]
    assert concurrency(episode, "joined") == 1


def pruned(episode: Episode) -> Episode:
    """Without the agents that cannot be reached from the root through joins."""

    def reached(agent: str) -> set[str]:
        return {agent}.union(*(reached(join.child) for join in episode.trace(agent).joins))

    kept = reached(CONTROLLER)
    traces = (trace for trace in episode.traces if trace.agent in kept)
    return replace(
        episode, traces=tuple(replace(t, edges=tuple(e for e in t.edges if e.child in kept)) for t in traces)
    )


@given(programs())
def test_joined_is_the_pool_of_those_who_were_joined(program: Program) -> None:
    """As if the others had never been forked; so at least one is always at work."""
    episode = speaking(program)
    joined, pool = concurrency(episode, "joined"), concurrency(episode)
    assert joined == pytest.approx(concurrency(pruned(episode)))
    assert critical_path(episode) == critical_path(pruned(episode))
    if joined is not None and pool is not None:
        assert 1 - 1e-9 <= joined <= pool + 1e-9


@given(programs(), st.data())
def test_silence_never_adds(program: Program, data: st.DataObject) -> None:
    episode = speaking(program)
    silent = data.draw(st.sets(st.sampled_from([trace.agent for trace in episode.traces])))
    less, more = concurrency(speaking(program, *silent), "joined"), concurrency(episode, "joined")
    if less is not None and more is not None:
        assert less <= more + 1e-9
