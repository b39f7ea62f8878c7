"""Random structures are valid, and varied."""

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from orgthink.grammar.actions import Fork, Join
from orgthink.grammar.asyncthink import Keys
from orgthink.training.coldstart.structures import random_plan, random_structure


@given(data=st.data(), seed=st.integers(), parts=st.lists(st.text(min_size=1), min_size=1, max_size=8, unique=True))
def test_every_structure_keeps_the_protocol_and_covers_every_part(data, seed, parts):
    capacity = data.draw(st.integers(1, 5))
    protocol, done = Keys(capacity), []
    for step in random_structure(random.Random(seed), parts, capacity):
        done.extend(step.parts)
        match step.action:
            case "fork":
                assert protocol.check(Fork(step.key, "q")) is None
            case "join":
                assert protocol.check(Join(step.key)) is None
    assert not protocol.taken
    assert sorted(done) == sorted(parts)


@given(st.integers(), st.integers(2, 6))
def test_every_plan_forks_keeps_the_protocol_and_counts_its_keys_up(seed, capacity):
    plan = random_plan(random.Random(seed), capacity)
    protocol = Keys(capacity)
    for step in plan:
        match step.action:
            case "fork":
                assert protocol.check(Fork(step.key, "q")) is None
            case "join":
                assert protocol.check(Join(step.key)) is None
    assert not protocol.taken
    forks = [step.key for step in plan if step.action == "fork"]
    assert forks == [str(i) for i in range(1, len(forks) + 1)] != []
    assert not any(a.action == b.action == "think" for a, b in pairwise(plan))
