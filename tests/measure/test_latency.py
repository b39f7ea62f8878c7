"""Eq. 4: the recurrence, the longest path on the graph, the timeline and virtual time tell the same."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from longest_path import longest_path
from random_episodes import Fork, Join, Program, Think, episode_of, programs, random_program, script_of

from orgthink.engines.scripted import ScriptedEngine
from orgthink.measure.latency import Stretch, concurrency, critical_path, critical_stretches, timeline
from orgthink.measure.usage import sampled_tokens
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import EdgeKind, Episode, Origin, Sampling, StopReason
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.tasks.countdown import COUNTDOWN

PROBLEM = COUNTDOWN.problem([1, 2, 3, 4, 5], 10)


def think(n: int) -> Program:
    return (Think(n),)


def test_recurrence_is_longest_path_on_random_episodes() -> None:
    """10,000 random episodes, which hold every shape that could matter."""
    rng = random.Random(4)
    seen: dict[str, int] = defaultdict(int)
    for _ in range(10_000):
        episode = episode_of(random_program(rng))
        assert critical_path(episode) == longest_path(episode)
        for shape in shapes(episode):
            seen[shape] += 1
    for shape in (
        "nested",
        "never joined",
        "key again",
        "no steps",
        "joins at one step",
        "fork after join at a step",
    ):
        assert seen[shape] > 500, seen


def shapes(episode: Episode) -> set[str]:
    found = set()
    for trace in episode.traces:
        ats = [join.at for join in trace.joins]
        found |= {"nested"} if trace.parent and trace.forks else set()
        found |= {"never joined"} if len(trace.joins) < len(trace.forks) else set()
        found |= {"key again"} if len({fork.key for fork in trace.forks}) < len(trace.forks) else set()
        found |= {"no steps"} if trace.parent and not trace.steps else set()
        found |= {"joins at one step"} if len(set(ats)) < len(ats) else set()
        pairs = [(a, b) for a, b in pairwise(trace.edges) if a.at == b.at]
        again = any((a.kind, b.kind) == (EdgeKind.JOIN, EdgeKind.FORK) for a, b in pairs)
        found |= {"fork after join at a step"} if again else set()
    return found


@given(programs())
def test_recurrence_is_longest_path(program: Program) -> None:
    episode = episode_of(program)
    assert critical_path(episode) == longest_path(episode)


@given(programs(), programs(1), st.data())
def test_a_worker_that_is_never_joined_does_not_lengthen_the_path(
    program: Program, child: Program, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(program)))
    more = (*program[:place], Fork("9", (Think(1000), *child)), *program[place:])
    assert critical_path(episode_of(more)) == critical_path(episode_of(program))
    assert longest_path(episode_of(more)) == longest_path(episode_of(program))


@given(programs())
def test_critical_stretches_lie_end_to_end_on_the_timeline(program: Program) -> None:
    episode = episode_of(program)
    ends = [0]
    lanes = timeline(episode)
    for stretch in critical_stretches(episode):
        assert stretch.start == ends[-1]
        assert stretch.end > stretch.start
        ends.append(stretch.end)
        assert any(
            lane.agent == stretch.agent
            and lane.first <= stretch.first
            and stretch.first - lane.first == stretch.start - lane.start
            and stretch.end <= lane.end
            for lane in lanes
        )
    assert ends[-1] == critical_path(episode)


@given(programs())
def test_timeline_places_every_step_once_and_in_order(program: Program) -> None:
    episode = episode_of(program)
    lanes = timeline(episode)
    end = critical_path(episode)
    joined = {join.child for trace in episode.traces for join in trace.joins}
    for trace in episode.traces:
        mine = [lane for lane in lanes if lane.agent == trace.agent]
        done, now = 0, 0
        for lane in mine:
            assert (lane.first, lane.start >= now, lane.start < lane.end <= end) == (done, True, True)
            done, now = done + lane.end - lane.start, lane.end
        if trace.parent is None or (trace.parent == episode.root.agent and trace.agent in joined):
            assert done == trace.steps
        assert done <= trace.steps


EXAMPLES: dict[str, tuple[Program, int]] = {
    "nothing": ((), 0),
    "sequential": (think(7), 7),
    "child is back before the join": ((Think(2), Fork("1", think(3)), Think(5), Join("1"), Think(1)), 8),
    "parent waits": ((Think(2), Fork("1", think(9)), Think(5), Join("1"), Think(1)), 12),
    "forked in the second fragment": (
        (Think(1), Fork("1", think(4)), Join("1"), Think(2), Fork("2", think(6)), Think(3), Join("2"), Think(1)),
        # l_1 = max(1, 1 + 4) = 5; l_2 = max(5 + 5, 5 + 2 + 6) = 13; l_3 = 14
        14,
    ),
    "forked in the first fragment, joined in the second": (
        (Think(2), Fork("1", think(3)), Think(1), Fork("2", think(20)), Think(1), Join("1"), Think(4), Join("2"),
         Think(2)),
        # l_1 = max(4, 2 + 3) = 5; l_2 = max(5 + 4, 0 + 3 + 20) = 23; l_3 = 25
        25,
    ),
    "parallel: code forks all, joins all": (
        (Fork("1", think(5)), Fork("2", think(8)), Fork("3", think(2)), Join("1"), Join("2"), Join("3")),
        8,
    ),
    "chain: code forks and joins one after another": (
        (Fork("1", think(5)), Join("1"), Fork("2", think(8)), Join("2"), Fork("1", think(2)), Join("1")),
        15,
    ),
    "code forks two at once, twice": (
        (Fork("1", think(5)), Fork("2", think(8)), Join("1"), Join("2"),
         Fork("1", think(2)), Fork("2", think(1)), Join("2"), Join("1")),
        10,
    ),
    "nested": (
        (Think(1), Fork("1", (Think(2), Fork("1", think(10)), Think(3), Join("1"), Think(4))), Think(6), Join("1"),
         Think(1)),
        # the worker: l_1 = max(5, 2 + 10) = 12, 16 in all; the organizer: l_1 = max(7, 1 + 16) = 17
        18,
    ),
    "never joined": ((Think(3), Fork("1", think(100)), Think(2)), 5),
    "a child that nobody joins inside one that is joined": (
        (Fork("1", (Think(1), Fork("2", think(50)), Think(2))), Think(1), Join("1")),
        3,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("program", "steps"), EXAMPLES.values(), ids=EXAMPLES)
def test_by_hand(program: Program, steps: int) -> None:
    episode = episode_of(program)
    assert critical_path(episode) == steps
    assert longest_path(episode) == steps


def test_timeline_and_path_by_hand() -> None:
    """The paper's Figure 4, with a worker that nobody joins."""
    program = (
        Think(2), Fork("1", think(3)), Think(1), Fork("2", think(20)), Think(1), Join("1"), Think(4),
        Fork("3", think(90)), Join("2"), Think(2),
    )  # fmt: skip
    root, one, two, three = (trace.agent for trace in episode_of(program).traces)
    assert timeline(episode_of(program)) == (
        Stretch(root, 0, 4, 0),
        Stretch(root, 5, 9, 4),
        Stretch(root, 23, 25, 8),
        Stretch(one, 2, 5, 0),
        Stretch(two, 3, 23, 0),
        Stretch(three, 9, 25, 0),  # cut off: it has 90 steps
    )
    assert critical_stretches(episode_of(program)) == (
        Stretch(root, 0, 3, 0),
        Stretch(two, 3, 23, 0),
        Stretch(root, 23, 25, 8),
    )


def test_a_tie_stays_with_the_parent() -> None:
    episode = episode_of((Think(1), Fork("1", think(4)), Think(4), Join("1"), Think(1)))
    assert {stretch.agent for stretch in critical_stretches(episode)} == {episode.root.agent}


def test_a_child_cut_short_has_fewer_steps() -> None:
    episode = episode_of((Think(1), Fork("1", think(9)), Join("1")))
    root, child = episode.traces
    failed = replace(child, spans=(replace(child.spans[0], tokens=2),), stop=StopReason.ERROR, error="boom")
    assert critical_path(replace(episode, traces=(root, failed))) == 3
    silent = replace(child, spans=(), stop=StopReason.CANCELLED)
    assert critical_path(replace(episode, traces=(root, silent))) == 1


def test_only_sampled_tokens_are_steps() -> None:
    episode = episode_of(think(3))
    span = episode.root.spans[0]
    spans = (replace(span, origin=Origin.PROMPT, tokens=50), span, replace(span, origin=Origin.INJECTED, tokens=70))
    assert critical_path(replace(episode, traces=(replace(episode.root, spans=spans),))) == 3


def run_program(program: Program, rng: random.Random) -> Episode:
    """The program as the runtime plays it, at one second a token."""
    limits = Limits(capacity=99, depth=2)
    engine = ScriptedEngine(script_of(program, rng))
    return run_virtual(attempt(AsyncThink(), PROBLEM, Backing(engine, Sampling(10_000)), limits=limits))


def test_critical_path_is_virtual_time() -> None:
    """Nested forks, failing and forgetful workers, some never joined: steps are seconds, on the axis too."""
    rng = random.Random(8)
    nested = 0
    for n in range(250):
        join_all = (Join("1"), Join("2")) if n % 2 else ()
        episode = run_program((*random_program(rng), *join_all), rng)
        assert episode.answer == "1", episode
        assert critical_path(episode) == longest_path(episode) == episode.seconds
        assert concurrency(episode) == pytest.approx(sampled_tokens(episode) / episode.seconds)
        assert placed(episode) == {
            (trace.agent, span.start, span.end)
            for trace in episode.traces
            for span in trace.spans
            if span.origin is Origin.SAMPLED
        }
        nested += any(trace.parent and trace.joins for trace in episode.traces)
    assert nested > 30


def placed(episode: Episode) -> set[tuple[str, float, float]]:
    return {(stretch.agent, stretch.start, stretch.end) for stretch in timeline(episode)}


def test_the_runtime_tells_chains_from_parallel_forks() -> None:
    """Both are recorded at step 0 of a controller."""
    episode = episode_of(EXAMPLES["chain: code forks and joins one after another"][0])
    assert [edge.kind for edge in episode.root.edges] == [EdgeKind.FORK, EdgeKind.JOIN] * 3
    flat = replace(episode.root, edges=(*episode.root.forks, *episode.root.joins))
    assert critical_path(replace(episode, traces=(flat, *episode.traces[1:]))) == 8
