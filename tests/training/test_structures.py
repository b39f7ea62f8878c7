"""Random structures are valid, and varied."""

import random

from hypothesis import given
from hypothesis import strategies as st

from orgthink.grammar.actions import Fork, Join
from orgthink.grammar.asyncthink import Keys
from orgthink.training.structures import random_structure


@given(st.integers(), st.lists(st.text(min_size=1), min_size=1, max_size=8, unique=True), st.integers(1, 5))
def test_every_structure_keeps_the_protocol_and_covers_every_part(seed, parts, capacity):
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


def test_many_shapes_occur():
    shapes = {tuple(step.action for step in random_structure(random.Random(seed), "abcd", 3)) for seed in range(300)}
    assert len(shapes) > 30
    assert ("think",) * 4 in shapes
