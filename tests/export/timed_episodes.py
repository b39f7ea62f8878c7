"""Random episodes with everything that an export can show: times, texts, tools, failures."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import strategies as st
from random_episodes import Fork, Join, Program, episode_of, programs, random_program

from orgthink.record.episode import (
    CancelSource,
    Episode,
    FormatError,
    FormatFault,
    Grade,
    Origin,
    Problem,
    Sampling,
    Span,
    Status,
    StopReason,
    Trace,
)
from orgthink.util.errors import ErrorKind

TEXT = "a secret of the user"
"""Stands in every text of a random episode."""


def timed_episodes() -> st.SearchStrategy[Episode]:
    """Of small programs, and of drawn ones, in which several joins follow each other. All else follows from a seed: a
    choice of hypothesis for each of many fields would leave no room for programs."""
    seeds = st.integers(0, 10**9)
    drawn = seeds.map(lambda seed: (*random_program(random.Random(seed)), Fork("2", ()), Join("1"), Join("2")))
    return st.builds(_dressed, programs() | drawn, seeds)


def _dressed(program: Program, seed: int) -> Episode:
    episode, rng = episode_of(program), random.Random(seed)
    agents = [trace.agent for trace in episode.traces]
    faults = [FormatFault(rng.choice([*FormatError]), rng.choice(agents), 0, TEXT) for _ in range(rng.randrange(3))]
    return replace(
        episode,
        id=f"{rng.choice(['a', 'ü|', ' '])}{seed}",
        problem=Problem("p", "t", TEXT),
        traces=tuple(_trace(trace, rng) for trace in episode.traces),
        answer=rng.choice([None, TEXT]),
        format_faults=tuple(faults),
        grade=rng.choice([None, Grade(1, 1)]),
        stop=rng.choice([*StopReason]),
        error=rng.choice([None, TEXT]),
        error_kind=rng.choice([None, *ErrorKind]),
        seconds=_seconds(rng),
    )


def _trace(trace: Trace, rng: random.Random) -> Trace:
    """The same forks and joins, at random times; the steps lie in one span or in two."""
    first = rng.randint(0, trace.steps)
    parts = [(Origin.PROMPT, 3), (Origin.SAMPLED, first), (Origin.INJECTED, 2), (Origin.SAMPLED, trace.steps - first)]
    return replace(
        trace,
        role=rng.choice(["worker", "python"]),
        spans=tuple(_span(origin, tokens, rng) for origin, tokens in parts),
        model=rng.choice(["small", "small", None]),
        stop=rng.choice([*StopReason]),
        status=rng.choice([*Status]),
        returned=rng.choice([None, TEXT]),
        cancel=rng.choice([None, *CancelSource]),
        error=rng.choice([None, TEXT]),
        error_kind=rng.choice([None, *ErrorKind]),
        start=_seconds(rng),
        end=_seconds(rng),
        cost=rng.choice([None, 2.5]),
    )


def _span(origin: Origin, tokens: int, rng: random.Random) -> Span:
    start, end = rng.choice([(None, None), (_seconds(rng), _seconds(rng))])
    ids = rng.choice([None, tuple(range(tokens))])
    sampling = Sampling(9, stop=(TEXT,)) if origin is Origin.SAMPLED else None
    return Span(origin, TEXT, tokens, ids, sampling=sampling, start=start, end=end)


def _seconds(rng: random.Random) -> float:
    return rng.choice([0.0, 1.0, rng.uniform(0, 1e4)])
