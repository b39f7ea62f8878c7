"""Eq. 1 by hand, in both readings."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from random_episodes import Fork, Join, Program, Think, episode_of, programs

from orgthink.measure.concurrency import concurrency

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
@settings(max_examples=200, deadline=None)
def test_somebody_always_decodes(program: Program) -> None:
    """At every step of the critical path at least one agent is at work, and never more than there are."""
    episode = episode_of(program)
    pool, workers = concurrency(episode), concurrency(episode, "workers")
    if pool is not None and workers is not None:
        assert 1 - 1e-9 <= pool <= len(episode.traces)
        assert 0 <= pool - workers <= 1 + 1e-9
