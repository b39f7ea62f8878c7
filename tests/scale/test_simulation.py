"""The simulation of organizations on replicas: laws, and equality with a simulation of every single step."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale.stepwise import Stepwise

from orgthink.measure import latency as measured
from orgthink.scale.simulation.cluster import simulate
from orgthink.scale.simulation.engine import EngineModel, Roof
from orgthink.scale.simulation.program import Decode, Fork, Join, Program, Read, Wait, critical_path
from orgthink.scale.simulation.recorded import recorded
from orgthink.store import load

GOLDEN = Path(__file__).parents[1] / "golden" / "episodes.jsonl"

number = st.integers(0, 5)
roofs = st.builds(Roof, st.integers(1, 60), number, number, number, number)
models = st.builds(
    EngineModel,
    roofs,
    roofs,
    fixed=number,
    prefill=number,
    slots=st.integers(1, 6),
    cache=st.integers(200, 400),
    chunk=st.integers(1, 20),
    block=st.sampled_from([1, 4]),
    turnaround=st.integers(0, 40),
)
"""Seconds are integers, so that two simulations agree on what happens at the same time."""


def drawn(rng: random.Random, depth: int) -> Program:
    """A program with a few forks, of which some are not joined."""
    operations, forks, joined = [], 0, set[int]()
    for _ in range(rng.randrange(1, 6)):
        kind = rng.choice(["decode", "decode", "fork", "fork", "join", "read", "wait"])
        if kind == "decode":
            operations.append(Decode(rng.randrange(1, 13)))
        elif kind == "fork" and depth:
            operations.append(Fork(drawn(rng, depth - 1)))
            forks += 1
        elif kind == "join" and (open_ := [i for i in range(forks) if i not in joined]):
            joined.add(i := rng.choice(open_))
            operations += [Join(i), *([Read(rng.randrange(1, 9))] if rng.random() < 0.8 else [])]
        elif kind == "read":
            operations.append(Read(rng.randrange(1, 9)))
        elif kind == "wait":
            operations.append(Wait(rng.randrange(1, 100)))
    prompt = rng.randrange(1, 15)
    return Program(prompt, tuple(operations), rng.randrange(0, prompt + 1))


@settings(max_examples=1500, deadline=None)
@given(st.integers(0, 10**9), models, st.integers(1, 4), st.integers(1, 5))
def test_it_equals_a_simulation_of_every_single_step(seed, model, replicas, episodes):
    rng = random.Random(seed)
    programs = [drawn(rng, 2) for _ in range(episodes)]
    fast, slow = simulate(programs, model, replicas), Stepwise(programs, model, replicas).run()
    assert list(fast.episodes) == slow.finished
    assert (fast.busy, fast.sampled, fast.read) == (slow.busy, slow.sampled, slow.read)


def joined(rng: random.Random, depth: int) -> Program:
    """A program that joins all its forks."""
    operations, forks = [Decode(rng.randrange(1, 9))], 0
    for _ in range(rng.randrange(0, 5) if depth else 0):
        operations += [Fork(joined(rng, depth - 1)), Decode(rng.randrange(1, 6))]
        forks += 1
    for i in rng.sample(range(forks), forks):
        operations += [Join(i), Read(rng.randrange(1, 6)), Decode(rng.randrange(1, 6))]
    return Program(rng.randrange(1, 9), tuple(operations))


@given(st.integers(0, 10**9), models, st.integers(1, 5))
def test_all_tokens_are_decoded_and_read_once(seed, model, replicas):
    rng = random.Random(seed)
    programs = [joined(rng, 2) for _ in range(3)]
    found = simulate(programs, replace(model, block=1), replicas)
    agents = [agent for program in programs for agent in program]
    joins = sum(isinstance(step, Join) for agent in agents for step in agent.operations)
    injected = sum(step.tokens for agent in agents for step in agent.operations if isinstance(step, Read))
    assert found.sampled == sum(agent.decoded for agent in agents)
    assert found.read == sum(agent.prompt for agent in agents) + injected + joins  # with the last token before a join
    assert found.busy <= found.seconds * replicas
    assert found.seconds == max(found.episodes)


@given(st.integers(0, 10**9), models, st.integers(1, 12))
def test_nothing_is_faster_than_a_replica_for_each_agent(seed, model, replicas):
    """With fewer replicas steps are longer, and requests wait. It is no law that each further replica helps: it changes
    which agents share one."""
    program = joined(random.Random(seed), 2)
    alone = simulate([program], model, sum(1 for _ in program)).seconds
    least = min(model.decoding(1, 0, 1), model.reading(0, 0, 1, 1))
    assert critical_path(program) * least <= alone <= simulate([program], model, replicas).seconds


def test_a_further_replica_may_be_slower():
    """Of four agents the first and the last are long. On two replicas they lie apart; on three they share one."""
    lengths = (100, 1, 1, 100)
    vote = Program(0, (*(Fork(Program(1, (Decode(n),))) for n in lengths), *map(Join, range(4))))
    model = EngineModel(Roof(row=1, read=1))
    assert [simulate([vote], model, n).seconds for n in (1, 2, 3, 4)] == [202, 101, 200, 100]


@pytest.mark.parametrize("line", GOLDEN.read_bytes().splitlines())
def test_a_recorded_episode_takes_its_critical_path(line):
    """With a second for each step and nothing else, the wall clock is Eq. 4 of AsyncThink."""
    episode = load(line)
    program = recorded(episode)
    assert sorted(agent.decoded for agent in program) == sorted(trace.steps for trace in episode.traces)
    assert critical_path(program) == measured.critical_path(episode)
    assert simulate([program], EngineModel(Roof(base=1))).seconds == critical_path(program)
