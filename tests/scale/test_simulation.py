"""The simulation of organizations on replicas: laws, and equality with a simulation of every single step."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale.stepwise import Stepwise

from orgthink.errors import UserError
from orgthink.scale.simulation.cluster import simulate
from orgthink.scale.simulation.engine import EngineModel, Roof
from orgthink.scale.simulation.program import Decode, Fork, Join, Program, Read, Wait, critical_path

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


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 10**9), models, st.integers(1, 4), st.integers(1, 5))
def test_it_equals_a_simulation_of_every_single_step(seed, model, replicas, episodes):
    rng = random.Random(seed)
    programs = [drawn(rng, 2) for _ in range(episodes)]
    fast, slow = simulate(programs, model, replicas), Stepwise(programs, model, replicas).run()
    assert list(fast.episodes) == slow.finished
    assert fast.busy == slow.busy
